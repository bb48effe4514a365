"""The verdicts on a server that got where it should: READY and REACHED. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.watch.progress import show_seconds
from patchkit.watch.settings import Until
from patchkit.watch.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from patchkit.watch.judge import Judge


def judge_on_the_way(watch: Judge, now: float) -> Verdict | None:
    """What ``--until weights`` and ``--until graphs`` ask for."""
    until, phases = watch.settings.until, watch.phases
    if until is Until.WEIGHTS and phases.weights_done():
        says = "every rank has loaded its weights"
        return watch.verdict(Outcome.REACHED, says, now)
    if until is not Until.GRAPHS or not phases.graphs_done():
        return None
    # the scheduler is up: after the graphs, or where there are none
    if phases.has_graphs():
        return watch.verdict(Outcome.REACHED, "every rank has its CUDA graphs", now)
    off = phases.arguments is not None and not phases.arguments.graphs
    why = "they are disabled" if off else "no rank said that it captured any"
    says = f"the scheduler is up, without CUDA graphs: {why}"
    return watch.verdict(Outcome.REACHED, says, now, cause="no-graphs")


def judge_ready(watch: Judge, now: float) -> Verdict:
    return watch.verdict(Outcome.READY, ready_says(watch), now)


def ready_says(watch: Judge) -> str:
    """READY in a sentence."""
    answer = watch.answers.latest.get("/generate")
    spent = f"; a request took {answer.seconds:.1f} s" if answer else ""
    phases = watch.phases
    if phases.began is not None and phases.ready is not None:
        # the stamp of a line is of the second in which it was written
        took = show_seconds(max(0.0, phases.ready - phases.began))
        spent = f" after {took}{spent}"
    return f"the server is ready{spent}"
