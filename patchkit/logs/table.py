"""One row for each site, model, layer and width: counts and percentiles."""

from __future__ import annotations

import math
from typing import Any

from patchkit.logs.record import About, Record, shape_text
from patchkit.logs.sketch import Sketch

#: Different shapes, ranks, modes and so on of a row that are kept apart.
VARIANTS = 1024
PERCENTILES = (1, 50, 99)

#: rank, shape, dtype, mode, fc, captured
Variant = tuple[int, Any, str | None, Any, Any, Any]


class History:
    """Count, least and greatest row norm of a row in one forward mode."""

    __slots__ = ("count", "greatest", "least")

    def __init__(self) -> None:
        self.count = 0
        self.least = math.inf
        self.greatest = -math.inf


class Row:
    """What one site said about one layer's tensors of one width."""

    def __init__(self, first: Record) -> None:
        self.site, self.model, self.layer = first.site, first.model, first.layer
        self.first = first.where
        self.first_step = self.last_step = first.step
        self.nonfinite = 0
        self.unknown = 0
        self.absmax = 0.0
        self.row_norm = Sketch()
        self.least, self.greatest = math.inf, 0.0
        self.variants: dict[Variant, int] = {}
        self.histories: dict[Any, History] = {}

    def variant(self, about: About) -> Variant:
        """What is counted apart. Where there are too many, the rest is one."""
        fields = about.fields
        variant = (
            about.rank,
            about.shape,
            about.dtype,
            fields.get("mode"),
            fields.get("fc"),
            fields.get("captured"),
        )
        if variant not in self.variants and len(self.variants) >= VARIANTS:
            variant = (about.rank, None, None, None, None, None)
        self.variants.setdefault(variant, 0)
        return variant

    def history(self, mode: object) -> History:
        known = self.histories.get(mode)
        if known is None:
            known = History()
            if len(self.histories) < VARIANTS:
                self.histories[mode] = known
        return known

    def add(self, record: Record) -> float | None:
        """Returns the row norm (RMS), if there is one. The variant is counted apart."""
        step = record.step
        if step > self.last_step:
            self.last_step = step
        elif step < self.first_step:
            self.first_step = step
        if record.nonfinite:
            self.nonfinite += record.nonfinite
        absmax, norm, rows = record.absmax, record.norm, record.rows
        if absmax is not None and absmax > self.absmax:
            self.absmax = absmax
        if norm is None:
            self.unknown += 1
            return None
        if not rows:
            return None
        if norm < self.least:
            self.least = norm
        if norm > self.greatest:
            self.greatest = norm
        row_norm: float = norm / rows**0.5
        self.row_norm.add(row_norm)
        return row_norm

    @property
    def count(self) -> int:
        return sum(self.variants.values())

    def _of(self, place: int) -> set[Any]:
        return {one[place] for one in self.variants} - {None}

    @property
    def ranks(self) -> set[int]:
        return self._of(0)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return sorted(self._of(1))

    @property
    def dtypes(self) -> list[str]:
        return sorted(self._of(2))

    @property
    def modes(self) -> list[str]:
        return sorted(map(str, self._of(3)))

    @property
    def fc(self) -> dict[str, int]:
        """``applied`` and ``skipped``, how often."""
        found: dict[str, int] = {}
        for variant, count in self.variants.items():
            if variant[4] is not None:
                found[str(variant[4])] = found.get(str(variant[4]), 0) + count
        return found

    @property
    def in_graphs(self) -> bool:
        return any(variant[5] for variant in self.variants)

    def as_json(self) -> dict[str, Any]:
        return {
            "site": self.site,
            "model": self.model,
            "layer": self.layer,
            "count": self.count,
            "shapes": [shape_text(one) for one in self.shapes],
            "shapes_complete": len(self.variants) < VARIANTS,
            "dtypes": self.dtypes,
            "ranks": sorted(self.ranks),
            "modes": self.modes,
            "steps": [self.first_step, self.last_step],
            "norm": {"min": self.least, "max": self.greatest}
            if self.row_norm.count
            else None,
            "row_norm": _percentiles(self.row_norm),
            "absmax": self.absmax,
            "nonfinite": self.nonfinite,
            "without_statistics": self.unknown,
            "fc": self.fc,
        }


def _percentiles(sketch: Sketch) -> dict[str, float | None]:
    found = {f"p{percent}": sketch.percentile(percent) for percent in PERCENTILES}
    if sketch.count:
        found |= {"min": sketch.least, "max": sketch.greatest}
    return found


class Table:
    """At most ``MOST`` rows: a log of garbage must not fill the memory."""

    MOST = 4096

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.left_out = 0

    def settle(self) -> None:
        """Between two batches: no sketch keeps more values than it should."""
        for row in self.rows.values():
            if row.row_norm.full:
                row.row_norm.settle()

    def row(self, record: Record) -> Row | None:
        """None: there are too many."""
        shape = record.shape
        key = (record.site, record.model, record.layer, shape[-1] if shape else None)
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= self.MOST:
                self.left_out += 1
                return None
            row = self.rows[key] = Row(record)
        return row

    def sorted(self) -> list[Row]:
        """By site in the order in which they first spoke, then by layer."""
        sites = list(dict.fromkeys(key[:2] for key in self.rows))
        keys = sorted(
            self.rows,
            key=lambda key: (
                sites.index(key[:2]),
                key[2] is None,
                key[2] or 0,
                -(key[3] or 0),
            ),
        )
        return [self.rows[key] for key in keys]
