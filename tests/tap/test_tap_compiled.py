"""Taps under torch.compile: each one is there, once, in order, and says the same."""

from __future__ import annotations

import enum
import re
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")


class Mode(enum.IntEnum):
    DECODE = 2


class Batch:
    def __init__(self, rows):
        self.forward_mode = Mode.DECODE
        self.batch_size = rows
        self.out_cache_loc = torch.arange(rows) + 1
        self.can_run_tbo = False


MODEL = SimpleNamespace(
    layers_to_capture=[1, 2, 3], config=SimpleNamespace(hidden_size=4)
)


def forward(tap, fc):
    def run(x, batch):
        if tap.ENABLED:
            tap.begin("m", batch)
        states = []
        for layer in range(3):
            x = x * 2 + layer
            if tap.ENABLED and layer in (0, 2):
                tap.tap_stream("layer", x, x + 1, layer)
            states.append(x + 1)
        if tap.ENABLED:
            tap.tap_states("aux", states, MODEL)
            tap.tap_parts("concat", states)
        packed = torch.cat(states, -1)
        if tap.ENABLED:
            tap.tap_states("packed", packed, MODEL)
            tap.tap_concat("concat", packed, x)
            tap.tap_parts("inferred", packed)
            tap.tap_concat("inferred", packed, x)
            tap.tap_fc_in("fc_in", packed, fc)
        out = fc(packed)
        if tap.ENABLED:
            tap.tap_fc_out("fc_out", out, fc)
            tap.tap_fc_in("square.fc_in", out, fc)
            tap.tap_fc_out("square.fc_out", out, fc)
            tap.tap("own", out, alpha=0.5, word="a", number=3, many=[1, 2], none=None)
        return out

    return run


def plain(texts):
    """Steps go on; the compiler may round otherwise in the last place."""
    found = []
    for text in texts:
        text = re.sub(r"step=\d+", "step=N", text)
        number = r"(?<==)-?\d+\.\d+(?:e[+-]\d+)?"
        found.append(re.sub(number, lambda m: f"{float(m[0]):.4g}", text))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_nothing_is_removed_doubled_or_moved(load, said, backend, dynamic):
    """aot_eager removes dead code and makes everything functional, as inductor does."""
    tap = load()
    fc = torch.nn.Linear(12, 4)
    run = forward(tap, fc)
    with torch.no_grad():
        x = torch.randn(5, 4)
        expected = run(x, Batch(5))
        lines = plain(said.texts)
        assert len(lines) == 15
        torch.compiler.reset()
        compiled = torch.compile(run, backend=backend, fullgraph=True, dynamic=dynamic)
        for _ in range(3):
            before = len(said.texts)
            assert torch.allclose(compiled(x, Batch(5)), expected)
            assert plain(said.texts[before:]) == lines
        before = len(said.texts)
        compiled(torch.randn(7, 4), Batch(7))
        assert len(said.texts) - before == len(lines)
        assert " shape=7x4 " in said.texts[-1]
        assert said.texts[-1].endswith("mode=DECODE batch=7")
    steps = {line["step"] for line in said.lines}
    assert steps == {"1", "2", "3", "4", "5"}


def test_in_inference_mode(load, said):
    tap = load()
    fc = torch.nn.Linear(12, 4)
    torch.compiler.reset()
    compiled = torch.compile(forward(tap, fc), backend="aot_eager", fullgraph=True)
    with torch.inference_mode():
        for _ in range(2):
            compiled(torch.randn(3, 4), Batch(3))
    assert len(said.lines) == len(said.texts) == 30


def test_a_failure_inside_does_not_reach_the_model(load, said, monkeypatch):
    import importlib

    tap = load()
    speaker = importlib.import_module(f"{tap.__name__}.speaker")

    def broken(tensor):
        raise RuntimeError("no way")

    monkeypatch.setattr(speaker, "measure", broken)

    def run(x):
        tap.tap("x", x)
        return x + 1

    torch.compiler.reset()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(1)) == 2
    assert compiled(torch.ones(1)) == 2
    assert said.texts == ["EAGLE3_DEBUG[x] tap failed: RuntimeError: no way"]


def test_with_the_gate_off_compiled_code_holds_no_trace_of_it(load, said):
    tap = load(None)
    graphs = []

    def backend(module, inputs):
        graphs.append([str(node.target) for node in module.graph.nodes])
        return module.forward

    def without(x):
        return (x * 2).sum()

    def tapped(x):
        tap.begin("m", None)
        y = x * 2
        tap.tap("x", y, layer=1)
        if tap.ENABLED:
            tap.tap_stream("s", y, None, 1)
        return y.sum()

    x = torch.ones(3)
    for function in (without, tapped):
        torch.compiler.reset()
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        for _ in range(3):
            assert compiled(x) == 6
    assert len(graphs) == 2, "recompiled"
    assert [x.lower() for x in graphs[0]] == [x.lower() for x in graphs[1]]
    assert said.texts == []
