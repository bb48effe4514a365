"""What there is to show while a watch goes on. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.watch.judge import Judge
from patchkit.watch.progress import Progress


@dataclass(frozen=True)
class Status:
    """What there is to show at one moment. ``cpu``: percent of one CPU,
    ``None`` while it is not known."""

    phase: str
    elapsed: float
    in_phase: float
    progress: Progress
    spread: str = ""
    ranks: int = 0
    memory: int = 0
    cpu: float | None = None
    gpu: tuple[int, ...] | None = None
    quiet: float = 0.0


def status_of(judge: Judge, began: float, cpu: float | None, now: float) -> Status:
    """``began``: when the watch did, if the server's start is not known."""
    sample, phases = judge.sample, judge.phases
    everybody = (*sample.ranks, *sample.others) if sample else ()
    return Status(
        phases.label(),
        # of a log whose clock is ahead of ours nothing is negative
        max(0.0, now - (phases.began or began)),
        max(0.0, now - (phases.since() or began)),
        judge.progress(now),
        phases.spread(),
        len(sample.ranks) if sample else len(phases.ranks),
        sum(one.memory for one in everybody),
        cpu,
        sample.gpu if sample else None,
        judge.quiet(now) if sample and sample.watched else 0.0,
    )
