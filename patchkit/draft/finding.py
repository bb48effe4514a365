"""What check-draft has to say: findings, and a row for each check. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """``ERROR``: a run with this draft does what ``outcome`` says. ``WARNING``: it may
    cost acceptance, or will elsewhere. ``NOTE``: good to know."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    NOTE = "NOTE"


@dataclass(frozen=True)
class Finding:
    """``releases``: those in which it bites. ``recipe``: the one that helps, "" if none
    does; ``options``: those that it needs. ``outcome``: what a run does, for a finding
    that is an error: ``stops:STEP``, ``unwritten``, ``dropped``, ``fc-skipped``,
    ``layers``, ``tokens``."""

    check: str
    code: str
    severity: Severity
    text: str
    evidence: tuple[str, ...] = ()
    releases: str = "all"
    todo: str = ""
    recipe: str = ""
    outcome: str = ""
    options: str = ""

    def __post_init__(self) -> None:
        assert bool(self.outcome) == (self.severity is Severity.ERROR), self.code


@dataclass(frozen=True)
class Row:
    """One check: ``said`` if nothing is wrong; ``skipped``: why it was not made."""

    check: str
    said: str = ""
    skipped: str = ""


#: In the order of the report, and what a check is about.
CHECKS = {
    "architecture": "the class that loads the draft",
    "weights": "names and shapes of its tensors",
    "fc": "the width of its fc",
    "capture": "whether the target can capture",
    "layers": "the layers that are captured",
    "vocabulary": "its vocabulary and maps",
    "fields": "fields of its config.json",
    "numerics": "numbers against the target's",
    "algorithm": "the algorithm it is started with",
}


def listed(names: Sequence[str], most: int = 4) -> str:
    """``a, b and 3 more``."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
