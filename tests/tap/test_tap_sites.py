from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")


def target(layers_to_capture, hidden=4, **attributes):
    return SimpleNamespace(
        layers_to_capture=layers_to_capture,
        config=SimpleNamespace(hidden_size=hidden),
        **attributes,
    )


def states(count, hidden=4, rows=2):
    return [torch.full((rows, hidden), float(j + 1)) for j in range(count)]


def without_layer(line):
    return {key: value for key, value in line.items() if key != "layer"}


# ---- tap_states


def layers_said(tap, said, model, count, batch):
    tap.begin("deepseek_v2", batch)
    tap.tap_states("aux", states(count), model)
    # The order of the states must stay: state j is full of j + 1.
    assert [line["absmax"] for line in said.lines] == [str(j + 1) for j in range(count)]
    return [line["layer"] for line in said.lines]


@pytest.mark.parametrize(
    "captured,attributes,tbo,expected",
    [
        ([2, 30, 58], {}, False, ["2", "30", "58"]),
        ([58, 2, 30], {}, False, ["2", "30", "58"]),
        ({58, 2, 30}, {}, False, ["2", "30", "58"]),
        ([30, 2, 2, 30], {}, False, ["2", "30"]),
        ([2, 30, 61], {"layers": [None] * 61}, False, ["2", "30"]),
        ([2, 30, 58], {"start_layer": 0, "end_layer": 31}, False, ["2", "30"]),
        ([2, 30, 58], {"start_layer": 30, "end_layer": 61}, False, ["30", "58"]),
        ([2, 30, 58], {"start_layer": 0, "end_layer": 30}, False, ["2"]),
        ([2, 30, 58], {"start_layer": 0, "end_layer": 61}, True, ["2"]),
        ([2, 3, 58], {"start_layer": 0, "end_layer": 61}, True, ["2"]),
        ([2, 3, 58], {"start_layer": 0, "end_layer": 61}, False, ["2", "3", "58"]),
        ([2, 30, 58], {"start_layer": 3, "end_layer": 61}, True, ["30", "58"]),
        ([2, 30, 58], {"start_layer": 20, "end_layer": 61}, True, ["?", "?"]),
        ([2, 30, 58], {}, False, ["?", "?"]),
        ([], {}, False, ["?"]),
    ],
)
def test_layer_of_each_state(load, said, batch, captured, attributes, tbo, expected):
    batch.can_run_tbo = tbo
    model = target(captured, first_k_dense_replace=3, **attributes)
    assert layers_said(load(), said, model, len(expected), batch) == expected


def test_packed_and_list_say_the_same(load, said, batch):
    tap = load()
    parts = [torch.randn(5, 8), torch.randn(5, 8), torch.randn(5, 8)]
    parts[1][2, 3] = float("nan")
    model = target([1, 5, 9], hidden=8)
    tap.begin("m", batch)
    tap.tap_states("aux", parts, model)
    tap.tap_states("aux", tuple(parts), model)
    tap.tap_states("aux", torch.cat(parts, dim=-1), model)
    assert len(said.lines) == 9
    assert said.lines[:3] == said.lines[3:6] == said.lines[6:]
    assert [line["nonfinite"] for line in said.lines[:3]] == ["0", "1", "0"]
    assert {line["shape"] for line in said.lines} == {"5x8"}


@pytest.mark.parametrize("width,shape", [(9, "2x9"), (0, "2x0")])
def test_packed_width_that_does_not_divide(load, said, batch, width, shape):
    tap = load()
    tap.begin("m", batch)
    tap.tap_states("aux", torch.ones(2, width), target([1, 2], hidden=4))
    assert (said.only["layer"], said.only["shape"]) == ("?", shape)


def test_packed_without_hidden_size(load, said, batch):
    tap = load()
    tap.begin("m", batch)
    model = SimpleNamespace(layers_to_capture=[1, 2], config=SimpleNamespace())
    tap.tap_states("aux", torch.ones(2, 8), model)
    assert (said.only["layer"], said.only["shape"]) == ("?", "2x8")


def test_idle_batch(load, said, batch):
    tap = load()
    tap.begin("m", batch)
    tap.tap_states("aux", torch.empty(0, 12), target([1, 2, 3]))
    assert [line["shape"] for line in said.lines] == ["0x4"] * 3
    assert {(x["norm"], x["mean"], x["absmax"]) for x in said.lines} == {("0",) * 3}


# ---- tap_stream


def test_stream(load, said, batch):
    tap = load()
    tap.begin("m", batch)
    tap.tap_stream("s", torch.full((2, 4), 1.0), torch.full((2, 4), 2.0), 7)
    line = said.only
    assert (line["layer"], line["absmax"], line["mean"]) == ("7", "3", "3")
    assert "partial" not in line


def test_stream_without_residual(load, said):
    load().tap_stream("s", torch.full((2, 4), 1.0), None, 0)
    assert (said.only["layer"], said.only["absmax"]) == ("0", "1")
    assert "partial" not in said.only


@pytest.mark.parametrize("residual", [None, torch.ones(2, 4)])
def test_stream_under_fusion_is_partial(load, said, residual):
    hidden = torch.ones(2, 4)
    hidden._sglang_needs_allreduce_fusion = True
    load().tap_stream("s", hidden, residual, 1)
    assert said.only["partial"] == "1"


def test_stream_of_two_shapes_is_partial_and_not_broadcast(load, said):
    load().tap_stream("s", torch.ones(1, 4), torch.ones(8, 4), 1)
    assert (said.only["partial"], said.only["shape"]) == ("1", "1x4")


# ---- tap_parts, tap_concat


def test_concat(load, said, batch):
    tap = load()
    tap.begin("deepseek_v2", batch)
    parts = states(3, hidden=64)
    tap.tap_parts("lp", parts)
    assert said.texts == []
    tap.tap_concat("lp", torch.cat(parts, -1), parts[0])
    line = said.only
    assert (line["parts"], line["widths"]) == ("3", "64+64+64")
    assert (line["shape"], line["model"]) == ("2x192", "deepseek_v2")
    assert "parts_inferred" not in line


def test_concat_of_unequal_parts(load, said):
    tap = load()
    parts = [torch.ones(2, 3), torch.ones(2, 5)]
    tap.tap_parts("lp", parts)
    tap.tap_concat("lp", torch.cat(parts, -1), torch.ones(2, 4))
    assert (said.only["parts"], said.only["widths"]) == ("2", "3+5")


@pytest.mark.parametrize(
    "width,parts,widths,inferred",
    [(192, "3", "64+64+64", "1"), (64, "1", "64", "1"), (100, "?", "100", None)],
)
def test_concat_of_packed(load, said, width, parts, widths, inferred):
    tap = load()
    packed = torch.ones(2, width)
    tap.tap_parts("lp", packed)
    tap.tap_concat("lp", packed, torch.ones(2, 64))
    line = said.only
    assert (line["parts"], line["widths"]) == (parts, widths)
    assert line.get("parts_inferred") == inferred


def test_concat_without_states(load, said):
    tap = load()
    tap.tap_parts("lp", None)
    tap.tap_concat("lp", None, torch.ones(2, 64))
    assert said.texts == []
    tap.tap_parts("lp", None)
    tap.tap_concat("lp", torch.ones(2, 64), torch.ones(2, 64))
    assert (said.only["parts"], said.only["widths"]) == ("0", "none")


def test_concat_forgets_the_parts(load, said, batch):
    tap = load()
    tap.tap_parts("lp", states(3))
    tap.tap_concat("lp", torch.ones(2, 12), torch.ones(2, 4))
    tap.tap_concat("lp", torch.ones(2, 12), torch.ones(2, 4))
    tap.tap_parts("lp", states(3))
    tap.begin("m", batch)
    tap.tap_concat("lp", torch.ones(2, 12), torch.ones(2, 4))
    assert [line["parts"] for line in said.lines] == ["3", "?", "?"]


def test_concat_names_the_current_model(load, said, batch):
    tap = load()
    for model in ("deepseek_v2", "llama_eagle3", "deepseek_v2"):
        tap.begin(model, batch)
        tap.tap_parts("lp", states(1))
        tap.tap_concat("lp", torch.ones(2, 4), torch.ones(2, 4))
    assert [(x["model"], x["step"]) for x in said.lines] == [
        ("deepseek_v2", "1"),
        ("llama_eagle3", "1"),
        ("deepseek_v2", "2"),
    ]


# ---- tap_fc_in, tap_fc_out


def draft(tap, hidden, fc, width):
    """The guard as it stands in the draft model."""
    tap.tap_fc_in("d.fc_in", hidden, fc)
    if hidden.shape[-1] != width:
        hidden = fc(hidden)
    tap.tap_fc_out("d.fc_out", hidden, fc)


def test_fc_applied(load, said):
    draft(load(), torch.ones(2, 12), torch.nn.Linear(12, 4), 4)
    received, made = said.lines
    assert (received["shape"], received["in_features"]) == ("2x12", "12")
    assert "fc" not in received
    assert (made["shape"], made["in_features"]) == ("2x4", "12")
    assert made["fc"] == "applied"
    assert list(made)[-2:] == ["fc", "in_features"]


def test_fc_skipped(load, said):
    draft(load(), torch.ones(2, 4), torch.nn.Linear(12, 4), 4)
    assert [line.get("fc") for line in said.lines] == [None, "skipped"]


def test_fc_is_observed_and_not_derived_from_widths(load, said):
    """A square fc: equal widths on both sides, and yet it ran."""
    fc = torch.nn.Linear(4, 4)
    tap = load()
    hidden = torch.ones(2, 4)
    tap.tap_fc_in("d.fc_in", hidden, fc)
    tap.tap_fc_out("d.fc_out", fc(hidden), fc)
    assert said.lines[1]["fc"] == "applied"


def test_fc_out_alone(load, said):
    load().tap_fc_out("d.fc_out", torch.ones(2, 4), None)
    assert (said.only["fc"], said.only["in_features"]) == ("?", "?")


def test_fc_of_sglang(load, said):
    draft(load(), torch.ones(2, 4), SimpleNamespace(input_size=12), 4)
    assert [line["in_features"] for line in said.lines] == ["12", "12"]


@pytest.mark.parametrize("end", ["fc_out", "begin"])
def test_fc_in_keeps_its_tensor_no_longer_than_needed(load, batch, end):
    tap = load(SITES="nothing")
    hidden = torch.ones(2, 12)
    alive = weakref.ref(hidden)
    tap.tap_fc_in("d.fc_in", hidden, None)
    del hidden
    gc.collect()
    assert alive() is not None
    if end == "begin":
        tap.begin("m", batch)
    else:
        tap.tap_fc_out("d.fc_out", torch.ones(1), None)
    gc.collect()
    assert alive() is None


# ---- tap, begin


def test_line(load, said, batch):
    tap = load()
    tap.begin("m", batch)
    tensor = torch.tensor([[3.0, -4.0], [0.0, 0.0]], dtype=torch.bfloat16)
    tap.tap("my.site", tensor, layer=5, note="two words", part=0.125, on=True)
    assert said.texts[0] == (
        "EAGLE3_DEBUG[my.site] rank=0 step=1 layer=5 shape=2x2 dtype=bfloat16 norm=5 "
        "mean=-0.25 absmax=4 nonfinite=0 note=two_words part=0.125 on=1"
    )
    assert len(said.texts) == 1


def test_six_digits(load, said):
    load().tap("x", torch.tensor([1234567.0, 0.0]))
    assert said.only["absmax"] == "1.23457e+06"


def test_scalar_and_unsupported(load, said):
    tap = load()
    tap.tap("x", torch.tensor(2.0))
    tap.tap("x", torch.ones(3, dtype=torch.complex64), layer=1)
    assert said.lines[0]["shape"] == "scalar"
    assert said.texts[1].endswith("layer=1 shape=3 dtype=complex64 stats=unsupported")


def test_fields_of_odd_kinds(load, said):
    tap = load()
    tap.tap(
        "x", torch.ones(2), a=None, b="", c="x\n y", d=torch.ones(3), e=[], f=(1, 2)
    )
    line = said.only
    assert [line[key] for key in "abcdef"] == [
        *("?", "none", "x_y", "Tensor", "none", "1+2")
    ]


@pytest.mark.parametrize("name", ["site", "step", "norm", "tensor_", "time"])
def test_reserved_fields(load, said, name):
    load().tap("x", torch.ones(2), **{name: 1})
    if name == "tensor_":
        assert said.only["tensor_"] == "1"
    else:
        assert said.texts[0].startswith("EAGLE3_DEBUG[x] tap failed: ValueError")
        assert name in said.texts[0]


def test_steps_are_counted_per_model(load, said, batch):
    tap = load()
    for model in ("a", "a", "b", "a"):
        tap.begin(model, batch)
        tap.tap("x", torch.ones(1))
        tap.tap("y", torch.ones(1))
    assert [line["step"] for line in said.lines] == list("11221133")


def test_without_begin_a_site_counts_its_calls(load, said):
    tap = load(EVERY="2")
    for _ in range(4):
        tap.tap("x", torch.ones(1))
    tap.tap("y", torch.ones(1))
    assert [(x["site"], x["step"]) for x in said.lines] == [
        ("x", "1"),
        ("x", "3"),
        ("y", "1"),
    ]


def test_begin_does_not_keep_the_batch_alive(load):
    class Batch:
        can_run_tbo = False

    tap = load()
    batch = Batch()
    alive = weakref.ref(batch)
    tap.begin("m", batch)
    del batch
    gc.collect()
    assert alive() is None


def test_begin_takes_a_batch_without_weak_references(load, said):
    tap = load()
    tap.begin("m", (1, 2))
    tap.begin("m", None)
    tap.tap("x", torch.ones(1))
    assert said.only["step"] == "2"
