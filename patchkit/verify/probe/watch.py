"""What a forward call does besides computing: reads of a tensor's values, prints.

Reading a value waits for the GPU, and ends the server inside a CUDA graph. Nothing of
it shows in the outputs, so it is watched.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch

#: What brings a tensor's values to the host. ``bool(t)`` and ``int(t)`` end here too.
READS = (
    *("item", "tolist", "cpu", "numpy", "__repr__", "__format__", "__bool__"),
    *("__int__", "__float__", "__index__", "nonzero"),
)


class HostReads:
    """Counts reads by the code of ``modules``, as ``module.function:method``."""

    def __init__(self, modules: Iterable[str]) -> None:
        self.modules = frozenset(modules)
        self.found: Counter[str] = Counter()

    def install(self) -> None:
        for name in READS:
            setattr(
                torch.Tensor, name, self._watched(name, getattr(torch.Tensor, name))
            )

    def take(self) -> dict[str, int]:
        """What was counted since the last time."""
        found, self.found = self.found, Counter()
        return dict(found)

    def _watched(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def watched(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            module = frame.f_globals.get("__name__", "")
            if module in self.modules:
                short = module.rpartition(".")[2]
                self.found[f"{short}.{frame.f_code.co_name}:{name}"] += 1
            return method(tensor, *args, **kwargs)

        return watched


class Printed:
    """The lines that go to standard output and error, both of which are ``file``."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.at = 0
        self.take()

    def take(self) -> list[str]:
        """Complete lines since the last time, at most 50."""
        sys.stdout.flush()
        sys.stderr.flush()
        size = os.path.getsize(self.file)
        with open(self.file, "rb") as log:
            log.seek(self.at)
            found = log.read(size - self.at)
        self.at = size
        return found.decode("utf-8", "replace").splitlines()[:50]
