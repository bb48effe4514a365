"""What phases are made of: one stage of one rank, and its progress bar."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.watch.events import Stage

TARGET, DRAFT = "target", "draft"

#: Label of the server's own spans, those of no rank.
SERVER = "server"


@dataclass
class Span:
    """One stage of one rank. ``name`` as the log has it ("Capture draft cuda graph");
    ``ended`` is ``None`` while it lasts. Times are seconds since the epoch."""

    rank: str
    stage: Stage
    model: str
    name: str
    began: float
    ended: float | None = None

    @property
    def label(self) -> str:
        return " ".join(one for one in (self.stage.value, self.model) if one)


@dataclass
class Bar:
    """A progress bar: ``done`` of ``total``; ``began`` when it was first seen."""

    stage: Stage
    model: str
    name: str
    done: int
    total: int
    began: float
    at: float
    first: int = 0

    @property
    def label(self) -> str:
        """Of the span that it is of."""
        return " ".join(one for one in (self.stage.value, self.model) if one)
