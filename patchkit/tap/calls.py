# patchkit: tap
"""What the host remembers of a tap that a device only knows by a number."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass

import torch

from .ring import CALL_BITS

#: Above this, what is remembered of eager calls is forgotten again, oldest first.
#: Calls inside graphs stay: their graphs may be replayed at any time.
MOST_EAGER = 1 << 16


@dataclass(frozen=True)
class Call:
    """One tap in one variant of a forward.

    ``shape``: of the tensor, or of one state if it is packed; a first axis of None is
    told by each record. ``segments``: states that lie side by side in the tensor;
    ``joined``: they are said in one line. ``fields``: as the line has them.
    ``counted``: rows are counted by a mask, so that none may be left. ``supported``:
    there are statistics.
    """

    site: str
    model: str | None
    rank: int
    shape: tuple[int | None, ...]
    width: int
    dtype: torch.dtype
    segments: int
    joined: bool
    layers: tuple[int | None, ...]
    fields: tuple[tuple[str, object], ...]
    mode: str | None
    batch: int | None
    captured: bool
    warmup: bool
    counted: bool
    supported: bool
    save: int


class Calls:
    """Numbers for calls; equal eager calls share one. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Call, int] = {}
        self._calls: dict[int, Call] = {}
        self._next = itertools.count()

    def number(self, call: Call) -> int:
        """A captured call gets a number of its own each time."""
        with self._lock:
            if not call.captured:
                known = self._numbers.get(call)
                if known is not None:
                    return known
                if len(self._numbers) >= MOST_EAGER:
                    oldest = next(iter(self._numbers))
                    del self._calls[self._numbers.pop(oldest)]
                self._numbers[call] = number = self._new(call)
                return number
            return self._new(call)

    def get(self, number: int) -> Call | None:
        return self._calls.get(number)

    def _new(self, call: Call) -> int:
        number = next(self._next) & ((1 << CALL_BITS) - 1)
        self._calls[number] = call
        return number
