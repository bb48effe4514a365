"""All that is known when a check is judged. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from patchkit.verify.jobs import FORWARD, Result
from patchkit.verify.verdict import Check, Verdict, cannot_run


@dataclass(frozen=True)
class Promise:
    """What a recipe says of one of its sites: ``views`` are the oracle's quantities
    it observes, ``layers`` the only layers of which it does (``None``: all)."""

    site: str
    views: tuple[str, ...]
    layers: frozenset[int] | None = None


@dataclass(frozen=True)
class Evidence:
    """``results``: job name -> one result a rank. ``same``: nothing differs from the
    baseline, whose jobs are then the patched ones. ``shape``: layers and layer ids of
    the tiny target, and its golden statistics."""

    results: Mapping[str, Sequence[Result]]
    version: str = "unknown"
    same: bool = True
    applied: tuple[str, ...] = ()
    promises: tuple[Promise, ...] = ()
    #: checks that applied recipes promise to make right
    fixed: frozenset[str] = frozenset()
    #: the draft's side was taken out on purpose: it was not run
    no_draft: bool = False
    #: patterns of outputs that they may change
    changes: tuple[str, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    shape: Mapping[str, Any] = field(default_factory=dict)
    overlaid: frozenset[str] = frozenset()
    chosen: tuple[str, ...] = ()

    def ranks(self, job: str) -> Sequence[Result]:
        if self.same and job.startswith("baseline"):
            job = job.replace("baseline", "patched", 1)
        return self.results.get(job, ())

    def may_change(self, output: str) -> bool:
        return any(fnmatchcase(output, pattern) for pattern in self.changes)

    def one(self, job: str) -> Result | None:
        found = self.ranks(job)
        return found[0] if found else None


#: Raised by code that is wrong, whatever the environment.
_BROKEN = ("SyntaxError", "IndentationError", "TabError", "NameError")


def unusable(name: str, evidence: Evidence, *jobs: str) -> Check | None:
    """Why check ``name`` can't be judged on ``jobs``; ``None`` if all of them ran.

    A job of the tree's that hung or died is a FAIL, and so is one that raised outside
    a forward call if the tree's own code is to blame; else it could not run. The
    check that the failing step belongs to says so, and the others point to it.
    """
    for job in jobs:
        results = evidence.ranks(job)
        if not results:
            return cannot_run(name, f"{job} was not run")
        # where one rank dies the other waits for it, so that hanging is no cause
        ended = [one for one in results if not one.ran]
        for result in sorted(ended, key=lambda one: one.status == "hung"):
            return _unusable(name, evidence, result)
    return None


def _unusable(name: str, evidence: Evidence, result: Result) -> Check:
    if result.status == "refused":
        return cannot_run(name, result.error)
    owner = _owner(result)
    hung = result.status == "hung"
    told = "-" not in result.job or _as_plain(evidence, result)
    if owner != name and owner in evidence.chosen and told:
        return cannot_run(name, f"the models did not run: see {owner}", hung=hung)
    ended = result.status in ("hung", "died")
    if ended:
        failed = not result.job.startswith("baseline")
    else:
        failed = is_to_blame(evidence, result)
    said = f"{result.status}: {result.error}" if ended else result.error
    return Check(
        name,
        Verdict.FAIL if failed else Verdict.CANNOT_RUN,
        f"{result.job}: {result.step or 'start'}: {said}",
        (*result.trace, *result.output),
        hung=hung,
    )


def _as_plain(evidence: Evidence, result: Result) -> bool:
    """Whether the same job without its variant failed in the same way."""
    plain = evidence.one(result.job.partition("-")[0])
    return plain is not None and (plain.status, plain.step, plain.error) == (
        *(result.status, result.step, result.error),
    )


def _owner(result: Result) -> str:
    """The check that a worker's last step belongs to."""
    if result.job.startswith("gated"):
        return "gate-on"
    step = result.step
    if step.startswith(f"{FORWARD} draft"):
        return "draft"
    if step.startswith((FORWARD, "set ")):
        return "capture"
    return "weights" if step in ("target", "draft model") else "import"


def is_to_blame(evidence: Evidence, result: Result) -> bool:
    """Whether the tree's own files, and not the environment, made a job fail."""
    if result.job.startswith("baseline"):
        return False
    raised_in = list(result.facts.get("raised_in", ()))
    if not evidence.same:
        _, dash, variant = result.job.partition("-")
        baseline = evidence.one(f"baseline{dash}{variant}")
        if baseline is not None:
            return baseline.ran
        baseline = evidence.one("baseline")
        if baseline is not None:
            # of another run: what it proves is no more than that
            return baseline.ran and bool(set(raised_in) & evidence.overlaid)
    ours = bool(set(raised_in[:1]) & evidence.overlaid)
    return ours and result.error.split(":")[0] in _BROKEN
