"""Taps of CPU tensors sent through a ring, by triton's interpreter or by torch."""

from __future__ import annotations

import functools
import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

HOW_TO = "see docs/testing.md"


def need_interpreter(monkeypatch):
    """Skip where triton is missing, or its interpreter does not run with this numpy."""
    pytest.importorskip("triton", reason=f"no triton: {HOW_TO}")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    problem = _why_not()
    if problem:
        pytest.skip(f"triton's interpreter does not run here ({problem}): {HOW_TO}")


@functools.cache
def _why_not():
    """That of triton 3.6 fails with numpy 2.4 at any scalar."""
    import triton
    import triton.language as tl

    def count(x, n):
        for at in range(0, tl.load(x)):
            tl.store(x + 1, at)

    count.__globals__["tl"] = tl
    memory = torch.tensor([3, 0])
    try:
        triton.jit(count)[(1,)](memory, 3)
    except Exception as error:
        text = " ".join(str(error).split())
        return text[:200] if "0-dimensional" in text else ""
    return ""


class Through:
    """A loaded tap package whose CPU tensors go through a device's ring."""

    def __init__(self, tap, monkeypatch, *, triton):
        self.tap = tap
        self.process_module = self.part("process")
        monkeypatch.setattr(self.process_module, "ON_HOST", frozenset({"meta"}))
        if not triton:
            monkeypatch.setattr(self.process_module, "_triton", lambda device: None)

    def part(self, name):
        return importlib.import_module(f"{self.tap.__name__}.{name}")

    @property
    def process(self):
        return self.part("speaker").STATE.process

    def flush(self):
        self.process.reader.flush(final=False)


def batch(loc, mode="DECODE"):
    if not isinstance(loc, torch.Tensor):
        loc = torch.tensor(loc)
    return SimpleNamespace(
        can_run_tbo=False,
        forward_mode=SimpleNamespace(name=mode),
        batch_size=loc.numel(),
        out_cache_loc=loc,
    )


def json_lines(folder):
    rows = []
    for file in sorted(Path(folder).glob("*.jsonl")):
        rows += [json.loads(line) for line in file.read_text().splitlines()]
    return rows


def expected(tensor, keep=None):
    """Statistics in float64 over the finite elements of the rows kept."""
    values = tensor.double().reshape(-1, tensor.shape[-1])
    if keep is not None:
        values = values[keep]
    finite = torch.isfinite(values)
    values = torch.where(finite, values, 0.0)
    count = int(finite.sum())
    rows = torch.linalg.vector_norm(values, dim=1)
    return {
        "norm": float(torch.linalg.vector_norm(rows)),
        "mean": float(values.sum()) / max(count, 1),
        "absmax": float(values.abs().max()),
        "nonfinite": finite.numel() - count,
        "rows": values.shape[0],
        "row_norm_min": float(rows.min()),
        "row_norm_max": float(rows.max()),
        "size": float(values.abs().mean()),
    }


def check(row, tensor, keep=None, relative=1e-5):
    want = expected(tensor, keep)
    for key in ("norm", "absmax", "row_norm_min", "row_norm_max"):
        assert row[key] == pytest.approx(want[key], rel=relative, abs=1e-37), key
    # A mean cancels.
    assert row["mean"] == pytest.approx(
        want["mean"], rel=relative, abs=relative * want["size"]
    )
    assert (row["nonfinite"], row["rows"]) == (want["nonfinite"], want["rows"])
