"""How a watch ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from patchkit.watch.stacks import Dump, Group


class Outcome(str, Enum):
    READY = "READY"
    REACHED = "REACHED"  # --until weights or graphs
    CRASHED = "CRASHED"
    HUNG = "HUNG"
    LOADING = "LOADING"  # the timeout came while it made progress
    UNHEALTHY = "UNHEALTHY"  # HTTP answers, the engine does not
    STOPPED = "STOPPED"  # somebody asked it to end


@dataclass(frozen=True)
class Verdict:
    """``says`` is a sentence, ``next`` the next step, ``cause`` the name of a known
    failure; ``details`` further lines (a traceback, stacks)."""

    outcome: Outcome
    says: str
    next: str = ""
    rank: str | None = None
    cause: str = ""
    details: tuple[str, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    phase: str = ""
    fraction: float | None = None
    eta: float | None = None
    groups: tuple[Group, ...] = ()
    dumps: tuple[Dump, ...] = ()
    notes: tuple[str, ...] = field(default=())
    #: whether the server had got ready
    was_ready: bool = False

    @property
    def exit_code(self) -> int:
        fine = self.outcome in (Outcome.READY, Outcome.REACHED)
        if fine or (self.outcome is Outcome.STOPPED and self.was_ready):
            return 0
        return 5 if self.outcome is Outcome.LOADING else 1

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.outcome.value,
            "exit_code": self.exit_code,
            "says": self.says,
            "next": self.next,
            "rank": self.rank,
            "cause": self.cause,
            "phase": self.phase,
            "percent": None if self.fraction is None else round(100 * self.fraction, 1),
            "eta_s": None if self.eta is None else round(self.eta, 1),
            "seconds": {name: round(value, 1) for name, value in self.phases},
            "details": list(self.details),
            "stacks": [
                {
                    "ranks": list(one.ranks),
                    "odd": one.odd,
                    "frames": [str(frame) for frame in one.stack],
                }
                for one in self.groups
            ],
            "without_stack": {one.rank: one.why for one in self.dumps if one.why},
            "notes": list(self.notes),
        }
