"""What the tap must never do: change, raise, synchronise in a capture, hide."""

from __future__ import annotations

import importlib
import logging
import random
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")


def parts_of(tap, name):
    return importlib.import_module(f"{tap.__name__}.{name}")


def call_all(tap, make):
    """Every public call once, on tensors from ``make(rows, width)``."""
    seen = [make(4, 8) for _ in range(3)]
    model = SimpleNamespace(
        layers_to_capture=[1, 2, 3], config=SimpleNamespace(hidden_size=8)
    )
    tap.begin("m", SimpleNamespace(can_run_tbo=False))
    tap.tap_states("aux", seen, model)
    packed = make(4, 24)
    tap.tap_states("packed", packed, model)
    tap.tap_stream("stream", seen[0], seen[1], 1)
    tap.tap_parts("concat", seen)
    tap.tap_concat("concat", packed, seen[0])
    tap.tap_fc_in("fc_in", packed, None)
    tap.tap_fc_out("fc_out", packed, None)
    tap.tap("tap", seen[2])
    return [*seen, packed]


SITES = {"aux", "packed", "stream", "concat", "fc_in", "fc_out", "tap"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_changes_nothing(load, said, dtype):
    tap = load()
    originals = []

    def make(rows, width):
        tensor = torch.randn(rows, width).to(dtype)
        tensor[0, 0] = float("nan")
        tensor[1, 1] = float("inf")
        originals.append((tensor, tensor.clone(), tensor._version))
        return tensor

    call_all(tap, make)
    assert {line["site"] for line in said.lines} == SITES
    for tensor, before, version in originals:
        same = tensor.view(torch.uint8) == before.view(torch.uint8)
        assert bool(same.all())
        assert tensor._version == version
        assert tensor.grad_fn is None


def test_random_state_and_default_dtype(load, said):
    tap = load()
    generator, python = torch.get_rng_state(), random.getstate()
    call_all(tap, lambda *shape: torch.ones(shape))
    assert torch.equal(torch.get_rng_state(), generator)
    assert random.getstate() == python
    usual = said.texts[:]
    try:
        torch.set_default_dtype(torch.float16)
        again = load()
        call_all(again, lambda *shape: torch.ones(shape, dtype=torch.float32))
    finally:
        torch.set_default_dtype(torch.float32)
    assert said.texts[len(usual) :] == usual


def test_inference_mode(load, said):
    tap = load()
    with torch.inference_mode():
        tensors = call_all(tap, lambda *shape: torch.ones(shape))
        tensors[0].add_(1)
    assert {line["site"] for line in said.lines} == SITES
    assert len(said.texts) == len(said.lines)


def test_no_autograd_graph_is_built(load, monkeypatch):
    tap = load()
    enabled = []
    monkeypatch.setattr(
        parts_of(tap, "speaker"),
        "measure",
        lambda tensor: enabled.append((torch.is_grad_enabled(), tensor.grad_fn)),
    )
    with torch.enable_grad():
        leaf = torch.ones(2, 4, requires_grad=True)
        tap.tap_stream("s", leaf, leaf, 0)
        assert torch.is_grad_enabled()
    assert enabled == [(False, None)]


def test_parameters_and_autograd(load, said):
    tap = load()
    leaf = torch.ones(2, 4, requires_grad=True)
    middle = leaf * 2
    tap.tap("x", middle)
    tap.tap_stream("s", middle, leaf, 0)
    middle.sum().backward()
    assert torch.equal(leaf.grad, torch.full((2, 4), 2.0))
    assert [line["mean"] for line in said.lines] == ["2", "3"]


def test_a_failure_is_said_once_per_site_and_counted(load, said, monkeypatch):
    tap = load()
    speaker = parts_of(tap, "speaker")

    def broken(tensor):
        raise RuntimeError("no\nway")

    monkeypatch.setattr(speaker, "measure", broken)
    for _ in range(3):
        call_all(tap, lambda *shape: torch.ones(shape))
    assert len(said.texts) == len(SITES)
    assert "EAGLE3_DEBUG[aux] tap failed: RuntimeError: no way" in said.texts
    assert speaker.STATE.failures == dict.fromkeys(SITES, 3)


@pytest.mark.parametrize("junk", [None, 3, "text", object(), [None], {}])
def test_junk_does_not_raise(load, said, junk):
    tap = load()
    for name in ("tap_states", "tap_stream", "tap_concat", "tap_fc_in", "tap_fc_out"):
        getattr(tap, name)(f"junk.{name}", junk, junk)
    tap.tap_parts("junk.parts", junk)
    tap.tap("junk.tap", junk)
    tap.tap("junk.args")
    tap.tap_fc_in(site="junk.keyword", hidden_states=torch.ones(1), fc=None)
    tap.begin(junk, junk)
    tap.tap("fine", torch.ones(1))
    assert "fine" in {line["site"] for line in said.lines}
    assert "junk.keyword" in {line["site"] for line in said.lines}
    assert any("EAGLE3_DEBUG[junk.tap] tap failed: " in text for text in said.texts)


def test_a_handler_that_raises(load, monkeypatch):
    class Broken(logging.Handler):
        def handle(self, record):
            raise RuntimeError("broken handler")

    tap = load()
    handler = Broken()
    logging.getLogger().addHandler(handler)
    try:
        tap.tap("x", torch.ones(1))
    finally:
        logging.getLogger().removeHandler(handler)


def test_keyboard_interrupt_goes_through(load, monkeypatch):
    tap = load()

    def stop(tensor):
        raise KeyboardInterrupt

    monkeypatch.setattr(parts_of(tap, "speaker"), "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        tap.tap("x", torch.ones(1))


# ---- CUDA graphs


class Untouchable(torch.Tensor):
    """Any tensor operation is an error, as a synchronisation is in a capture."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", str(func))
        # Reading metadata (shape, device) is allowed.
        assert name == "__get__", f"{name} during capture"
        return super().__torch_function__(func, types, args, kwargs or {})


def test_silent_inside_a_capture(load, said, monkeypatch):
    tap = load()
    capturing = [True]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    for _ in range(2):
        call_all(tap, lambda *shape: torch.ones(shape).as_subclass(Untouchable))
    assert said.lines == []
    assert len(said.texts) == len(SITES)
    assert all("inside a CUDA graph" in text for text in said.texts)
    assert parts_of(tap, "speaker").STATE.failures == {}
    capturing[0] = False
    tap.tap("tap", torch.ones(1))
    assert said.lines[0]["step"] == "2"


def test_no_question_to_cuda_where_there_is_none(load, said, monkeypatch):
    def never():
        raise AssertionError("asked")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", never)
    load().tap("x", torch.ones(1))
    assert said.only["site"] == "x"


def test_a_filtered_site_does_not_mention_the_capture(load, said, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    tap = load(SITES="y")
    tap.tap("x", torch.ones(1))
    assert said.texts == []


@pytest.mark.parametrize("capturing", [True, False])
def test_capture_on_another_accelerator(load, said, monkeypatch, capturing):
    module = SimpleNamespace(is_current_stream_capturing=lambda: capturing)
    monkeypatch.setattr(torch, "meta", module, raising=False)
    load().tap("x", torch.ones(1, device="meta"))
    assert len(said.texts) == 1
    assert ("inside a CUDA graph" in said.texts[0]) == capturing


# ---- log levels


@pytest.mark.parametrize(
    "root,expected",
    [
        (logging.DEBUG, logging.INFO),
        (logging.INFO, logging.INFO),
        (logging.WARNING, logging.WARNING),
        (logging.ERROR, logging.ERROR),
    ],
)
def test_an_asked_for_line_is_seen(load, caplog, root, expected):
    logging.getLogger().setLevel(root)
    try:
        load().tap("x", torch.ones(1))
    finally:
        logging.getLogger().setLevel(logging.WARNING)
    assert [record.levelno for record in caplog.records] == [expected]


def test_seen_after_dict_config(load, said):
    tap = load()
    logging.getLogger("sglang.srt.patchkit_tap").disabled = True
    tap.tap("x", torch.ones(1))
    assert len(said.texts) == 1
