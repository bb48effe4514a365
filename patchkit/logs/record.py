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


@dataclass(slots=True)
class About:
    """What many records share: one tap in one kind of forward, in one file.

    None: not said, or said to be unknown. ``shape`` with padding rows. ``group``: the
    data-parallel group of the rank. ``fields``: the words that are no attribute here or
    of the record. ``place`` is for whoever looks at the records.
    """

    file: str
    site: str
    model: str | None
    rank: int
    layer: int | None
    shape: tuple[int, ...] | None
    dtype: str | None
    group: int | None
    fields: Mapping[str, Any]
    place: Any = field(default=None, compare=False, repr=False)

    @property
    def rows(self) -> int | None:
        """Of the tensor, padding included: all axes but the last."""
        return None if self.shape is None else math.prod(self.shape[:-1])


@dataclass(slots=True)
class Record:
    """One observed tensor.

    ``rows`` are those that are not padding; ``norm``, ``mean``, ``absmax`` are over the
    finite elements of these. ``time``: seconds since the epoch; from a log's prefix to
    the second, as if its local time was UTC.
    """

    about: About
    step: int
    norm: float | None
    mean: float | None
    absmax: float | None
    nonfinite: int | None
    rows: int | None
    row_min: float | None
    row_max: float | None
    segments: list[float] | None
    time: float | None
    line: int

    @property
    def site(self) -> str:
        return self.about.site

    @property
    def model(self) -> str | None:
        return self.about.model

    @property
    def rank(self) -> int:
        return self.about.rank

    @property
    def layer(self) -> int | None:
        return self.about.layer

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.about.shape

    @property
    def fields(self) -> Mapping[str, Any]:
        return self.about.fields

    @property
    def where(self) -> Where:
        return Where(self.about.file, self.line)

    @property
    def kind(self) -> str:
        """``aux`` of ``deepseek_v2.aux``: forks name the modules as they like."""
        return self.about.site.rpartition(".")[2]

    @property
    def said_model(self) -> str:
        """The model; where it is not said, the module in the site's name."""
        return self.about.model or self.about.site.partition(".")[0]

    @property
    def width(self) -> int | None:
        """Columns, of all states in the tensor."""
        shape = self.about.shape
        return shape[-1] if shape else None

    @property
    def shown_shape(self) -> str:
        shape = self.about.shape
        return "?" if shape is None else shape_text(shape)

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
