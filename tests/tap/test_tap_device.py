"""Taps through a ring, on a CPU: records are what float64 says, and none is missing."""

from __future__ import annotations

import gc
import math
import time
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from devicekit import batch, check, expected, json_lines  # noqa: E402

FLOATS = [torch.float32, torch.bfloat16, torch.float16]


def model(layers, hidden):
    return SimpleNamespace(
        layers_to_capture=layers, config=SimpleNamespace(hidden_size=hidden)
    )


def draw(rows, width, dtype=torch.float32, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, width, generator=generator) * scale + 0.1).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows,width", [(1, 1), (1, 64), (3, 200), (9, 1024)])
def test_statistics(through, said, tmp_path, dtype, rows, width):
    made = through(DIR=str(tmp_path))
    tensor = draw(rows, width, dtype)
    made.tap.begin("m", batch(range(1, rows + 1)))
    made.tap.tap("x", tensor, layer=4, word="a")
    made.flush()
    (row,) = json_lines(tmp_path)
    check(row, tensor)
    assert (row["site"], row["model"], row["rank"], row["step"]) == ("x", "m", 0, 1)
    assert (row["shape"], row["layer"], row["word"]) == ([rows, width], 4, "a")
    assert row["dtype"] == str(dtype).removeprefix("torch.")
    assert (row["mode"], row["batch"], row["captured"]) == ("DECODE", rows, 0)
    assert abs(row["time"] - time.time()) < 60
    assert said.only["rows"] == str(rows)
    assert said.only["norm"] == f"{row['norm']:.6g}"


@pytest.mark.parametrize("rows", [300, 1030])
def test_many_rows(through, said, tmp_path, rows):
    """More rows than programs: several rows at a time, a warp each."""
    made = through(DIR=str(tmp_path))
    tensor = draw(rows, 40, torch.bfloat16)
    loc = torch.arange(rows)
    loc[-7:] = 0
    made.tap.begin("m", batch(loc))
    made.tap.tap("x", tensor)
    made.flush()
    (row,) = json_lines(tmp_path)
    check(row, tensor, loc != 0)


def test_padding_rows_are_left_out_and_said(through, said, tmp_path):
    made = through(DIR=str(tmp_path))
    tensor = draw(8, 64, torch.bfloat16)
    tensor[5:] = float("nan")
    made.tap.begin("m", batch([4, 9, 1, 2, 3, 0, 0, 0]))
    made.tap.tap("x", tensor)
    made.flush()
    (row,) = json_lines(tmp_path)
    check(row, tensor, slice(0, 5))
    assert (row["rows"], row["shape"], row["nonfinite"]) == (5, [8, 64], 0)
    assert said.only["rows"] == "5/8"


@pytest.mark.parametrize("dtype", FLOATS)
def test_non_finite_elements(through, said, tmp_path, dtype):
    made = through(DIR=str(tmp_path))
    tensor = draw(6, 100, dtype)
    tensor[0, 3], tensor[2, 99], tensor[2, 0] = math.nan, math.inf, -math.inf
    tensor[5, 5] = math.nan
    made.tap.begin("m", batch([1, 2, 3, 4, 5, 0]))
    made.tap.tap("x", tensor)
    made.tap.tap("nothing finite", torch.full((2, 3), math.nan))
    made.flush()
    row, none = json_lines(tmp_path)
    check(row, tensor, slice(0, 5))
    assert row["nonfinite"] == 3
    assert (none["norm"], none["mean"], none["absmax"]) == (0, 0, 0)
    assert none["nonfinite"] == 6


@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1e-18, 1e18, 1e25, 1e37])
@pytest.mark.parametrize("odd_one", [None, 1.0])
def test_range(through, said, tmp_path, scale, odd_one):
    """Squares leave float32's range long before the values do."""
    made = through(DIR=str(tmp_path))
    tensor = draw(5, 50, scale=scale)
    if odd_one:
        tensor[2] = odd_one
    made.tap.tap("x", tensor)
    made.flush()
    (row,) = json_lines(tmp_path)
    check(row, tensor, relative=1e-4 if scale < 1e-37 else 1e-5)


def test_strides(through, said, tmp_path):
    made = through(DIR=str(tmp_path))
    whole = draw(12, 96, torch.bfloat16)
    views = [whole[:, 32:64], whole[::3], whole[0], whole.t(), whole[2:5, 1:90]]
    views += [whole.view(3, 4, 96), whole[0].expand(4, -1), torch.tensor(3.0)]
    for index, view in enumerate(views):
        made.tap.tap(f"x{index}", view)
    made.flush()
    rows = json_lines(tmp_path)
    assert [row["shape"] for row in rows] == [list(view.shape) for view in views]
    for row, view in zip(rows, views):
        check(row, view.reshape(1, -1) if view.dim() < 2 else view)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool]
)
def test_other_numbers(through, said, tmp_path, dtype):
    made = through(DIR=str(tmp_path))
    tensor = (draw(3, 20) * 5).abs().to(dtype)
    made.tap.tap("x", tensor)
    made.flush()
    check(json_lines(tmp_path)[0], tensor)


def test_kinds_without_statistics_are_said_and_not_guessed(through, said, tmp_path):
    made = through(DIR=str(tmp_path))
    made.tap.begin("m", batch([1, 2]))
    made.tap.tap("x", torch.ones(2, 3).to(torch.float8_e4m3fn))
    made.tap.tap("y", torch.ones(3, dtype=torch.complex64))
    made.flush()
    first, second = json_lines(tmp_path)
    assert (first["stats"], first["norm"], first["shape"]) == (
        "unsupported",
        None,
        [2, 3],
    )
    assert (first["dtype"], first["step"]) == ("float8_e4m3fn", 1)
    assert second["stats"] == "unsupported"
    assert said.lines[0]["stats"] == "unsupported"


def test_nothing_is_said_of_an_empty_tensor(through, said):
    made = through()
    made.tap.tap("x", torch.empty(0, 4))
    made.tap.tap("y", torch.ones(1, 1))
    made.flush()
    assert said.only["site"] == "y"


@pytest.mark.parametrize("packed", [True, False])
def test_states_have_their_layers(through, said, tmp_path, packed):
    made = through(DIR=str(tmp_path))
    states = [draw(4, 32, torch.bfloat16, seed) for seed in range(3)]
    made.tap.begin("m", batch([3, 4, 5, 0]))
    given = torch.cat(states, -1) if packed else states
    made.tap.tap_states("aux", given, model([58, 2, 30], 32))
    made.flush()
    rows = json_lines(tmp_path)
    assert [row["layer"] for row in rows] == [2, 30, 58]
    for row, state in zip(rows, states):
        check(row, state, slice(0, 3))
        assert row["shape"] == [4, 32]


def test_a_joined_tensor_is_one_line_with_the_norm_of_each_state(
    through, said, tmp_path
):
    made = through(DIR=str(tmp_path))
    states = [draw(4, 32, torch.bfloat16, seed) for seed in range(3)]
    states[1][0, 0] = math.inf
    made.tap.begin("deepseek_v2", batch([3, 4, 5, 0]))
    made.tap.tap_parts("concat", states)
    packed = torch.cat(states, -1)
    made.tap.tap_concat("concat", packed, states[0])
    fc = torch.nn.Linear(96, 32)
    made.tap.tap_fc_in("fc_in", packed, fc)
    made.tap.tap_fc_out("fc_out", states[0], fc)
    made.flush()
    concat, received, out = json_lines(tmp_path)
    whole = expected(packed, slice(0, 3))
    for row in (concat, received):
        for key in ("norm", "absmax", "nonfinite", "rows"):
            assert row[key] == pytest.approx(whole[key], rel=1e-5)
        assert row["mean"] == pytest.approx(whole["mean"], abs=1e-5)
        assert row["shape"] == [4, 96]
        norms = [expected(state, slice(0, 3))["norm"] for state in states]
        assert row["segment_norms"] == pytest.approx(norms, rel=1e-5)
    assert (concat["parts"], concat["widths"]) == (3, [32, 32, 32])
    assert (concat["model"], received["in_features"]) == ("deepseek_v2", 96)
    assert (out["fc"], "segment_norms" in out) == ("applied", False)
    line = said.lines[0]
    assert line["segments"].count("+") == 2
    assert (line["parts"], line["widths"]) == ("3", "32+32+32")


def test_steps_join_the_sites_of_a_forward(through, said):
    made = through()
    for name in ("target", "draft", "draft", "target"):
        made.tap.begin(name, batch([1, 2]))
        for site in ("a", "b"):
            made.tap.tap(f"{name}.{site}", torch.ones(2, 4))
    made.flush()
    assert [(line["site"], line["step"]) for line in said.lines] == [
        *(("target.a", "1"), ("target.b", "1"), ("draft.a", "1"), ("draft.b", "1")),
        *(("draft.a", "2"), ("draft.b", "2"), ("target.a", "2"), ("target.b", "2")),
    ]


def test_without_begin_a_site_counts_its_calls(through, said):
    made = through(EVERY="2")
    for _ in range(3):
        made.tap.tap("x", torch.ones(1))
    made.tap.tap("y", torch.ones(1))
    made.flush()
    assert [(x["site"], x["step"]) for x in said.lines] == [
        *(("x", "1"), ("x", "3"), ("y", "1")),
    ]


def test_unannounced_warm_ups_are_dropped(through, said):
    """All slots 0: the inputs are invented. Also where a tap has no mask."""
    made = through()
    for loc in ([0, 0], [1, 2]):
        made.tap.begin("m", batch(loc))
        made.tap.tap("x", torch.ones(2, 4))
        made.tap.tap("pruned", torch.ones(1, 4))
    made.flush()
    assert [(line["site"], line["step"]) for line in said.lines] == [
        *(("x", "2"), ("pruned", "2")),
    ]


def test_announced_warm_ups_are_dropped_and_not_counted(through, said, monkeypatch):
    import sys

    state = SimpleNamespace(is_capture_mode=True)
    name = "sglang.srt.model_executor.cuda_graph_runner"
    monkeypatch.setitem(sys.modules, name, state)
    made = through()
    for _ in range(2):
        made.tap.begin("m", batch([1, 1]))
        made.tap.tap("x", torch.ones(2, 4))
    state.is_capture_mode = False
    made.tap.begin("m", batch([1, 2]))
    made.tap.tap("x", torch.ones(2, 4))
    made.flush()
    assert said.only["step"] == "1"


def test_a_mask_of_another_length_or_kind_is_no_mask(through, said):
    made = through()
    for loc in ([0, 1, 2], [0.0, 1.0], [[0, 1]]):
        made.tap.begin("m", batch(loc))
        made.tap.tap("x", torch.ones(2, 4))
    made.flush()
    assert [line["rows"] for line in said.lines] == ["2", "2", "2"]


def test_a_mask_may_have_any_stride(through, said):
    """SGLang's draft loop takes every third slot for a step."""
    made = through()
    slots = torch.tensor([[4, 5, 6], [7, 8, 9], [0, 0, 0]])
    for step in range(2):
        made.tap.begin("m", batch(slots.t()[step]))
        made.tap.tap("x", torch.ones(3, 4))
    made.flush()
    assert [line["rows"] for line in said.lines] == ["2/3", "2/3"]


def test_inference_mode_and_after(through, said):
    made = through()
    for mode in (True, False, True):
        with torch.inference_mode(mode):
            made.tap.begin("m", batch([1, 2]))
            made.tap.tap("x", torch.ones(2, 4))
    made.flush()
    assert [line["step"] for line in said.lines] == ["1", "2", "3"]
    assert len(said.texts) == 3


def test_the_reader_speaks_by_itself(through, said):
    made = through()
    made.tap.tap("x", torch.ones(2, 4))
    deadline = time.monotonic() + 20
    while not said.texts and time.monotonic() < deadline:
        time.sleep(0.01)
    assert said.only["rows"] == "2"


def test_changes_nothing_and_keeps_nothing(through, said):
    made = through()
    tensor = draw(4, 64, torch.bfloat16)
    before, version = tensor.clone(), tensor._version
    loc = torch.tensor([1, 2, 0, 0])
    made.tap.begin("m", batch(loc))
    made.tap.tap("x", tensor)
    made.flush()
    assert torch.equal(tensor.view(torch.int16), before.view(torch.int16))
    assert tensor._version == version
    import weakref

    alive = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert alive() is None


def test_a_lapped_ring_is_counted_and_reported(through, said, tmp_path):
    made = through(DIR=str(tmp_path), RING="64")
    count = 300 if through.way == "portable" else 100
    # Held, so that the thread does not read in between.
    with made.process.reader._lock:
        for _ in range(count):
            made.tap.tap("x", torch.ones(1, 1))
    made.flush()
    rows = json_lines(tmp_path)
    lost = [row for row in rows if row.get("event") == "lost"]
    spoke = [row for row in rows if "event" not in row]
    assert len(lost) == 1
    assert lost[0]["count"] + len(spoke) == count
    assert [row["step"] for row in spoke] == list(
        range(count - len(spoke) + 1, count + 1)
    )
    assert any(f"EAGLE3_DEBUG[ring] lost {lost[0]['count']}" in x for x in said.texts)


def test_unwanted_ranks_and_sites_launch_nothing(through, said, monkeypatch):
    made = through(RANKS="3", SITES="y")
    made.tap.tap("y", torch.ones(1))
    monkeypatch.setenv("RANK", "3")
    made.tap.tap("x", torch.ones(1))
    assert made.process.devices == {}


def test_every_thins_what_is_said(through, said):
    made = through(EVERY="3")
    for _ in range(7):
        made.tap.begin("m", batch([1]))
        made.tap.tap("x", torch.ones(1, 1))
    made.flush()
    assert [line["step"] for line in said.lines] == ["1", "4", "7"]
