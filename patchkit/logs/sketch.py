"""Percentiles of a stream in constant memory.

The first ``EXACT`` values are kept, and percentiles of these are exact. After that,
counts of buckets whose bounds grow geometrically: a percentile is then off by at most
``ERROR`` of its value (the bound of DDSketch, Masson et al., VLDB 2019). At most
``BUCKETS`` are kept; beyond that the lowest are joined, which makes small percentiles
of such data too high.
"""

from __future__ import annotations

import math
from collections import Counter

EXACT = 512
ERROR = 0.01
BUCKETS = 2048

_GAMMA = (1 + ERROR) / (1 - ERROR)
_SCALE = 1 / math.log(_GAMMA)


class Sketch:
    """Of finite values of 0 and above. ``add`` appends; the rest is done in bulk."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self.add = self._values.append
        self._put_away = 0
        self._buckets: Counter[int] = Counter()
        self._zeros = 0
        self._least = math.inf
        self._greatest = 0.0

    @property
    def full(self) -> bool:
        """More values wait than are kept: time for ``settle``."""
        return len(self._values) > EXACT

    @property
    def count(self) -> int:
        return self._put_away + len(self._values)

    @property
    def least(self) -> float:
        return min(self._least, min(self._values, default=math.inf))

    @property
    def greatest(self) -> float:
        return max(self._greatest, max(self._values, default=0.0))

    def settle(self) -> None:
        """Count the waiting values in buckets."""
        values = self._values
        self._least, self._greatest = self.least, self.greatest
        self._put_away += len(values)
        positive = [one for one in values if one > 0]
        self._zeros += len(values) - len(positive)
        self._buckets.update(
            [math.ceil(one * _SCALE) for one in map(math.log, positive)]
        )
        values.clear()
        if len(self._buckets) > BUCKETS:
            keys = sorted(self._buckets)
            low, first = keys[:-BUCKETS], keys[-BUCKETS]
            self._buckets[first] += sum(self._buckets.pop(key) for key in low)

    def percentile(self, percent: float) -> float | None:
        """The value at rank ``percent`` / 100 * (count - 1), rounded; None of none."""
        if not self.count:
            return None
        rank = round(percent / 100 * (self.count - 1))
        if not self._put_away:
            return sorted(self._values)[rank]
        self.settle()
        seen = self._zeros
        if rank < seen:
            return 0.0
        value = self._greatest
        for key in sorted(self._buckets):
            seen += self._buckets[key]
            if rank < seen:
                value = 2 * _GAMMA**key / (_GAMMA + 1)
                break
        return min(max(value, self._least), self._greatest)
