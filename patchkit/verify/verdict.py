"""Verdicts, checks and the tally that leads to them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum


class Verdict(str, Enum):
    PASS = "PASS"
    FAIL = "FAIL"
    NOT_APPLICABLE = "NOT APPLICABLE"
    CANNOT_RUN = "CANNOT RUN"


@dataclass(frozen=True)
class Check:
    """One line of the report.

    ``compared``: how many single comparisons were made; a PASS has at least one.
    ``defects``: known defects of stock SGLang that it met. ``hung``: a worker that it
    needs was killed after the time limit.
    """

    name: str
    verdict: Verdict
    reason: str = ""
    details: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()
    compared: int = 0
    seconds: float = 0.0
    hung: bool = False

    def __post_init__(self) -> None:
        if self.verdict is Verdict.PASS and not self.compared:
            raise ValueError(f"{self.name} passes without a comparison")

    def timed(self, seconds: float) -> Check:
        return replace(self, seconds=seconds)


@dataclass
class Tally:
    """Collects the comparisons of one check."""

    compared: int = 0
    failures: list[str] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)

    def expect(self, right: bool, failure: str) -> bool:
        self.compared += 1
        if not right:
            self.failures.append(failure)
        return right

    def known(self, defect: str) -> None:
        """A comparison that failed as it does in the stock baseline."""
        self.compared += 1
        if defect not in self.defects:
            self.defects.append(defect)

    def check(self, name: str, passed: str) -> Check:
        """``passed`` is the reason of a PASS."""
        if self.failures:
            more = len(self.failures) - 1
            reason = self.failures[0] + (f" (and {more} more)" if more else "")
            return self._made(name, Verdict.FAIL, reason)
        if not self.compared:
            return self._made(name, Verdict.CANNOT_RUN, "there was nothing to compare")
        return self._made(name, Verdict.PASS, passed)

    def _made(self, name: str, verdict: Verdict, reason: str) -> Check:
        return Check(
            name,
            verdict,
            reason,
            tuple(self.failures),
            tuple(self.defects),
            self.compared,
        )


def not_applicable(name: str, reason: str) -> Check:
    return Check(name, Verdict.NOT_APPLICABLE, reason)


def cannot_run(
    name: str, reason: str, details: Sequence[str] = (), *, hung: bool = False
) -> Check:
    return Check(name, Verdict.CANNOT_RUN, reason, tuple(details), hung=hung)
