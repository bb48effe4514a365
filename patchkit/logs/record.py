"""What one line of a log says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Where(NamedTuple):
    """A line of a file; lines count from 1, as editors do."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Prefix(NamedTuple):
    """Of a log line: seconds since the epoch, if local time was UTC; DP rank."""

    time: float | None
    group: int | None


NO_PREFIX = Prefix(None, None)


@dataclass(slots=True)
class Record:
    """One observed tensor. None: not said, or said to be unknown.

    ``shape`` with padding rows, ``rows`` without; ``norm``, ``mean``, ``absmax`` over
    the finite elements of these. ``fields`` are the further words (``parts``, ``fc``,
    ...) and are shared between records: read only.
    """

    site: str
    model: str | None
    rank: int
    step: int
    shape: tuple[int, ...] | None
    dtype: str | None
    norm: float | None
    mean: float | None
    absmax: float | None
    nonfinite: int | None
    layer: int | None
    rows: int | None
    row_min: float | None
    row_max: float | None
    fields: Mapping[str, Any]
    line: int
    file: str
    prefix: Prefix = NO_PREFIX

    @property
    def where(self) -> Where:
        return Where(self.file, self.line)

    @property
    def kind(self) -> str:
        """``aux`` of ``deepseek_v2.aux``: forks name the modules as they like."""
        return self.site.rpartition(".")[2]

    @property
    def time(self) -> float | None:
        """Seconds since the epoch; from a log prefix to the second."""
        said: float | None = self.fields.get("time")
        return self.prefix.time if said is None else said

    @property
    def segments(self) -> list[float] | None:
        """The norm of each state in a packed tensor."""
        said = self.fields.get("segment_norms")
        return None if not said or None in said else list(said)

    @property
    def width(self) -> int | None:
        """Columns, of all states in the tensor."""
        return self.shape[-1] if self.shape else None

    @property
    def shown_shape(self) -> str:
        return "?" if self.shape is None else shape_text(self.shape)

    @property
    def row_norm(self) -> float | None:
        """Root mean square over the counted rows of their norms."""
        if self.norm is None or not self.rows:
            return None
        return self.norm / math.sqrt(self.rows)


@dataclass(frozen=True, slots=True)
class Note:
    """A line about the taps themselves. ``event``: captured, lost, failed, saved, said.

    ``count`` is how many records were lost.
    """

    site: str
    event: str
    text: str
    file: str
    line: int
    count: int = 0
    rank: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> Where:
        return Where(self.file, self.line)


def shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
