"""An engine that ended: by the tree's fault, or for want of something here. Pure."""

from __future__ import annotations

from patchkit.canary.ended import frames, in_words
from patchkit.verify import pair
from patchkit.verify.evidence import Evidence
from patchkit.verify.jobs import FORWARD, Result
from patchkit.verify.verdict import Check, Verdict

#: What is raised where something is not installed, or does nothing on a CPU.
_LACKS = ("StandInCalled", "ImportError", "ModuleNotFoundError", "NotImplementedError")


def ends_by_its_fault(evidence: Evidence, result: Result) -> bool:
    """Whether the tree made its engine end: in the model's forward, and the baseline's
    engine runs, if there is another. What the machine lacks shows in a stand-in."""
    if result.job.startswith("baseline") or result.status != "failed":
        return False
    if not result.step.startswith(FORWARD) or _name(result.error) in _LACKS:
        return False
    if not evidence.same:
        _, _, variant = result.job.partition("-")
        one = evidence.one(f"baseline-{variant}") or evidence.one("baseline-engine")
        if one is not None:
            return one.ran
    return bool({*result.facts.get("raised_in", ())} & evidence.overlaid)


def ended(name: str, result: Result) -> Check:
    words = words_of(result)
    said = words if words == result.error else f"{words} ({result.error})"
    return Check(
        name,
        Verdict.FAIL,
        f"the engine ends in the model's forward: {said}",
        frames(result.trace) or (*result.trace, *result.output),
    )


def words_of(result: Result) -> str:
    return in_words(result.error, pair.plan().hidden) or result.error


def _name(error: str) -> str:
    """Of the exception, without its module."""
    return error.partition(":")[0].rpartition(".")[2]
