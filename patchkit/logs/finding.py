"""Findings: what is wrong, in words, with the lines that show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from patchkit.logs.record import Where

ERROR, WARNING, NOTE = "error", "warning", "note"
_ORDER = (ERROR, WARNING, NOTE)
#: Lines of evidence that are kept of one finding; all are counted.
EVIDENCE = 4
#: Different findings of one name that are kept.
MOST = 64


@dataclass
class Finding:
    """``name`` is for programs, ``title`` and ``text`` for people.

    ``text`` is about the first time; ``count`` says how often it was seen. ``site``,
    ``step`` and ``rank`` are of the first time too.
    """

    name: str
    severity: str
    title: str
    text: str
    evidence: list[Where]
    hint: str = ""
    site: str | None = None
    step: int | None = None
    rank: int | None = None
    count: int = 1
    #: so many times it could have been seen; 0: not counted
    of: int = 0


@dataclass
class Findings:
    """Collects findings: what is seen again is counted, not repeated."""

    found: dict[object, Finding] = field(default_factory=dict)
    dropped: int = 0

    def add(self, finding: Finding, *key: object) -> None:
        """``key``: what makes it another finding than one of the same name."""
        whole = (finding.name, *key)
        known = self.found.get(whole)
        if known is None:
            if sum(one.name == finding.name for one in self.found.values()) >= MOST:
                self.dropped += 1
                return
            self.found[whole] = finding
            del finding.evidence[EVIDENCE:]
            return
        known.count += 1
        for where in finding.evidence:
            if len(known.evidence) < EVIDENCE and where not in known.evidence:
                known.evidence.append(where)

    def again(self, name: str, where: Iterable[Where], *key: object) -> bool:
        """Count one that is known, without making its text; False if it is new."""
        known = self.found.get((name, *key))
        if known is None:
            return False
        known.count += 1
        if len(known.evidence) < EVIDENCE:
            known.evidence += [one for one in where if one not in known.evidence]
            del known.evidence[EVIDENCE:]
        return True

    def sorted(self) -> list[Finding]:
        return sorted(self.found.values(), key=lambda one: _ORDER.index(one.severity))
