"""Facts and tensors of one worker, for the parent to judge."""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from patchkit.verify.jobs import FORWARD, Values
from patchkit.verify.probe.ledger import Ledger
from patchkit.verify.probe.watch import HostReads, Printed


class Recorder:
    """``facts`` and ``tensors`` are complete at any time they are read. ``settle``
    is called at the end of each forward call, before what it said is read."""

    def __init__(
        self,
        ledger: Ledger,
        reads: HostReads,
        printed: Printed,
        taps: Path,
        step_file: Path,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self.ledger = ledger
        self.step_file = step_file
        self.settle = settle
        self.reads = reads
        self.printed = printed
        self.taps = TapLines(taps)
        self.facts: dict[str, Any] = {"calls": [], "timings": {}}
        self.tensors: dict[str, Values] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        self.begin(name)
        begin = time.perf_counter()
        yield
        self.facts["timings"][name] = round(time.perf_counter() - begin, 3)

    @contextlib.contextmanager
    def call(self, name: str) -> Iterator[dict[str, Any]]:
        """One forward call; an exception in it is a fact, and the others go on."""
        entry: dict[str, Any] = {"call": name, "error": ""}
        self.facts["calls"].append(entry)
        self.begin(f"{FORWARD} {name}")
        self.reads.take()
        self.printed.take()
        begin = time.perf_counter()
        try:
            yield entry
        except Exception as error:
            entry["error"] = told(error)
            entry["trace"] = traceback.format_exc().splitlines()[-12:]
        entry["seconds"] = round(time.perf_counter() - begin, 3)
        entry["reads"] = self.reads.take()
        self.settle()
        entry["taps"] = self.taps.take()
        entry["printed"] = self.printed.take()

    def begin(self, name: str) -> None:
        self.ledger.phase = name
        self.step_file.write_text(name)  # for whoever finds us dead

    def keep(self, name: str, tensor: torch.Tensor | None) -> None:
        if tensor is not None:
            wide = tensor.detach().double().cpu().contiguous()
            dtype = str(tensor.dtype).removeprefix("torch.")
            data = wide.numpy().tobytes()
            self.tensors[name] = Values(tuple(tensor.shape), dtype, data)


def told(error: BaseException) -> str:
    """An exception in one line; torch tells of some in a hundred."""
    first, *rest = str(error).strip().split("\n")
    if first.endswith(":") and rest:
        first = f"{first} {rest[0].strip()}"
    return f"{type(error).__name__}: {first[:300]}"


class TapLines:
    """The JSON lines that taps, or others, append to files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.at: dict[Path, int] = {}

    def take(self) -> list[dict[str, Any]]:
        """Lines since the last time."""
        return [line for lines in self.by_file().values() for line in lines]

    def by_file(self) -> dict[str, list[dict[str, Any]]]:
        """The same, by the name of the file."""
        found = {}
        for file in sorted(self.folder.glob("*.jsonl")):
            data = file.read_bytes()
            lines = data[self.at.get(file, 0) :].splitlines()
            found[file.name] = [json.loads(line) for line in lines]
            self.at[file] = len(data)
        return found
