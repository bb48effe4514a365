"""Shared by the GPU scripts: the tap under a name of its own, graphs, clocks."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
FAILED: list[str] = []
_START = time.time()


def log(*words: object) -> None:
    print(f"[{time.time() - _START:6.1f}]", *words, flush=True)


def check(name: str, good: bool, detail: object = "") -> bool:
    log("ok  " if good else "FAIL", name, detail)
    if not good:
        FAILED.append(name)
    return good


class Texts(logging.Handler):
    """What the taps log, kept instead of printed."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def load_tap(name: str, **environment: str) -> tuple[ModuleType, Texts]:
    """A fresh copy of the tap as ``name``.srt.patchkit_tap, with EAGLE3_DEBUG_*."""
    for key in [key for key in os.environ if key.startswith("EAGLE3_DEBUG")]:
        del os.environ[key]
    for key, value in environment.items():
        os.environ["EAGLE3_DEBUG" + (f"_{key}" if key != "ON" else "")] = value
    root = Path(tempfile.mkdtemp())
    folder = root / name / "srt" / "patchkit_tap"
    shutil.copytree(ROOT / "patchkit" / "tap", folder)
    sys.path.insert(0, str(root))
    tap = importlib.import_module(f"{name}.srt.patchkit_tap")
    texts = Texts()
    logger = logging.getLogger("sglang.srt.patchkit_tap")
    logger.handlers[:] = [texts]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    return tap, texts


def part(tap: ModuleType, name: str) -> Any:
    return importlib.import_module(f"{tap.__name__}.{name}")


def batch(loc: torch.Tensor, mode: str = "DECODE") -> Any:
    return SimpleNamespace(
        forward_mode=SimpleNamespace(name=mode),
        batch_size=loc.numel(),
        out_cache_loc=loc,
        can_run_tbo=False,
    )


def capture(run: Any, *, warm: int = 2, keep: bool = False) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True) if keep else torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    if keep:
        graph.instantiate()
    torch.cuda.synchronize()
    return graph


def nodes(run: Any) -> int:
    """How many nodes a graph of ``run`` has."""
    from cuda.bindings import runtime

    graph = capture(run, keep=True)
    error, _, count = runtime.cudaGraphGetNodes(graph.raw_cuda_graph())
    assert error == runtime.cudaError_t.cudaSuccess, error
    return int(count)


def microseconds(
    graph: torch.cuda.CUDAGraph, times: int, flush: torch.Tensor | None = None
) -> float:
    """Median of one replay. ``flush``: overwritten before each, to empty the L2."""
    found = []
    for _ in range(3):
        graph.replay()
    for _ in range(times):
        if flush is not None:
            flush.fill_(1)
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) * 1e3)
    return statistics.median(found)
