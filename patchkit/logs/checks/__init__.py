"""What is looked for, one record at a time and in bounded memory.

Every check has ``see(record)``; some have ``note(note)`` and ``finish()``. What they
find goes to the ``Findings`` that they were made with.
"""

from __future__ import annotations

from patchkit.logs.finding import ERROR, Finding, Findings
from patchkit.logs.record import Record


def close(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * max(abs(one), abs(other))


def forward_text(record: Record) -> str:
    """``step 7 of deepseek_v2 on rank 0``"""
    return f"step {record.step} of {record.said_model} on rank {record.rank}"


class Check:
    """A check that finds things about records: the first one is what it is about."""

    def __init__(self, findings: Findings, tolerance: float) -> None:
        self._findings = findings
        self._tolerance = tolerance

    def _add(
        self, name: str, title: str, text: str, hint: str, *records: Record
    ) -> None:
        """An error, once for each title; what comes again is counted."""
        first = records[0]
        where = [one.where for one in records]
        if not self._findings.again(name, where, title):
            found = Finding(name, ERROR, title, text, where, hint)
            found.site, found.step, found.rank = first.site, first.step, first.rank
            self._findings.add(found, title)
