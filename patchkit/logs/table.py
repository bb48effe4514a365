"""One row for each site, model, layer and width: counts and percentiles."""

from __future__ import annotations

import math
from typing import Any

from patchkit.logs.record import Record, shape_text
from patchkit.logs.sketch import Sketch

#: Different shapes, ranks, modes and so on of a row that are kept apart.
VARIANTS = 1024
PERCENTILES = (1, 50, 99)

#: rank, shape, dtype, mode, fc, captured
Variant = tuple[int, Any, str | None, Any, Any, Any]


class Row:
    """What one site said about one layer's tensors of one width."""

    def __init__(self, first: Record) -> None:
        self.site, self.model, self.layer = first.site, first.model, first.layer
        self.first = first.where
        self.steps = [first.step, first.step]
        self.nonfinite = 0
        self.unknown = 0
        self.absmax = 0.0
        self.row_norm = Sketch()
        self.norms = [math.inf, 0.0]
        self.variants: dict[Variant, int] = {}
        self.more_variants = 0
        #: mode -> count, least and greatest row norm (``checks.numbers``)
        self.history: dict[Any, list[float]] = {}

    def add(self, record: Record) -> float | None:
        """Returns the row norm (RMS), if there is one."""
        fields = record.fields
        variant = (
            record.rank,
            record.shape,
            record.dtype,
            fields.get("mode"),
            fields.get("fc"),
            fields.get("captured"),
        )
        try:
            self.variants[variant] += 1
        except KeyError:
            if len(self.variants) < VARIANTS:
                self.variants[variant] = 1
            else:
                self.more_variants += 1
        steps, step = self.steps, record.step
        if step > steps[1]:
            steps[1] = step
        elif step < steps[0]:
            steps[0] = step
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
        norms = self.norms
        if norm < norms[0]:
            norms[0] = norm
        if norm > norms[1]:
            norms[1] = norm
        row_norm: float = norm / rows**0.5
        self.row_norm.add(row_norm)
        if self.row_norm.full:
            self.row_norm.settle()
        return row_norm

    @property
    def count(self) -> int:
        return sum(self.variants.values()) + self.more_variants

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
            "shapes_complete": not self.more_variants,
            "dtypes": self.dtypes,
            "ranks": sorted(self.ranks),
            "modes": self.modes,
            "steps": self.steps,
            "norm": dict(zip(("min", "max"), self.norms)) if self.norms[1] else None,
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
