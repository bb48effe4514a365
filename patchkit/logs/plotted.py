"""Series for a plot, thinned out as they grow. No drawing here.

A series keeps at most ``POINTS`` bins of (x, least, mean, greatest); when it is full,
neighbours are joined, so that a run of any length keeps its extremes.
"""

from __future__ import annotations

from typing import Any

from patchkit.logs.record import Record

POINTS = 1024
#: Series of one plot, at most; more can't be told apart anyway.
SERIES = 512


class Series:
    """``x`` ascends, nearly."""

    def __init__(self) -> None:
        self.bins: list[list[float]] = []
        self._per_bin = 1

    def add(self, x: float, y: float) -> None:
        last = self.bins[-1] if self.bins else None
        if last is not None and last[4] < self._per_bin:
            last[1] = min(last[1], y)
            last[2] += y
            last[3] = max(last[3], y)
            last[4] += 1
            return
        if len(self.bins) == POINTS:
            self.bins = [_join(*self.bins[i : i + 2]) for i in range(0, POINTS, 2)]
            self._per_bin *= 2
        self.bins.append([x, y, y, y, 1])

    def points(self) -> list[tuple[float, float, float, float]]:
        """(x, least, mean, greatest)"""
        return [(x, low, total / n, high) for x, low, total, high, n in self.bins]


def _join(one: list[float], other: list[float]) -> list[float]:
    return [one[0], min(one[1], other[1]), one[2] + other[2], max(one[3], other[3]),
            one[4] + other[4]]  # fmt: skip


class Rate:
    """Rows in each interval of time; intervals double when there are too many."""

    def __init__(self) -> None:
        self.width = 1.0
        self.rows: dict[int, float] = {}

    def add(self, time: float, rows: int) -> None:
        key = int(time // self.width)
        self.rows[key] = self.rows.get(key, 0) + rows
        while len(self.rows) > POINTS:
            self.width *= 2
            halved: dict[int, float] = {}
            for one, count in self.rows.items():
                halved[one // 2] = halved.get(one // 2, 0) + count
            self.rows = halved

    def points(self) -> list[tuple[float, float]]:
        """(seconds since the epoch, rows a second), with zeros where nothing came."""
        if not self.rows:
            return []
        found, before = [], None
        for key in sorted(self.rows):
            if before is not None and key > before + 1:
                found.append(((before + 1) * self.width, 0.0))
                if key > before + 2:
                    found.append(((key - 1) * self.width, 0.0))
            found.append((key * self.width, self.rows[key] / self.width))
            before = key
        return found


class Plotted:
    """Row norms (RMS) by site, layer and rank over steps; rows a second by model."""

    def __init__(self) -> None:
        self.norms: dict[tuple[str, int | None, int], Series] = {}
        #: steps with a NaN or Inf: these have no point in ``norms``
        self.nonfinite: dict[tuple[str, int | None, int], Series] = {}
        self.rates: dict[tuple[str, int], Rate] = {}
        self.left_out = 0
        self._counted: dict[tuple[str, int], int | None] = {}

    def see(self, record: Record) -> None:
        norm = record.row_norm
        kind = record.kind
        if norm is not None and kind in ("aux", "layer"):
            where = self.nonfinite if record.nonfinite else self.norms
            self._put(where, record, norm)
        time, rows = record.time, record.rows
        if time is None or not rows or kind not in ("aux", "fc_in"):
            return
        who: tuple[Any, Any] = (record.site, record.rank)
        if who not in self.rates:
            if len(self.rates) >= SERIES:
                return
            self.rates[who] = Rate()
            self._counted[who] = record.layer
        # each forward once: by the first layer that spoke
        if self._counted[who] == record.layer:
            self.rates[who].add(time, rows)

    def _put(
        self,
        where: dict[tuple[str, int | None, int], Series],
        record: Record,
        norm: float,
    ) -> None:
        key = (record.site, record.layer, record.rank)
        series = where.get(key)
        if series is None:
            if len(where) >= SERIES:
                self.left_out += 1
                return
            series = where[key] = Series()
        series.add(record.step, norm)
