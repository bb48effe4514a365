"""The verdicts on a server that stands still. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.watch.events import Stage
from patchkit.watch.progress import show_seconds
from patchkit.watch.ranks import join_ranks
from patchkit.watch.stacks import describe, group, say_odd
from patchkit.watch.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from patchkit.watch.judge import Judge


def judge(watch: Judge, now: float) -> Verdict | None:
    """HUNG, once its stacks were taken; ``None`` while that can't be said."""
    sample = watch.sample
    if sample is None or not sample.watched or not watch.dumps:
        return None
    if _waits_for_other_nodes(watch):
        return None
    stall = watch.settings.stall
    quiet = watch.quiet(now)
    count = len(sample.watched)
    whom = f"any of {count} ranks" if sample.ranks and count > 1 else "it"
    if quiet >= stall and watch.dumped_at >= watch.stall.quiet_since:
        says = (
            f"hung {watch.phases.place()}: no log line, no CPU, no GPU and nothing"
            f" read by {whom} for {show_seconds(quiet)}"
        )
        return _hung(watch, says, now)
    frozen = now - watch.stall.frozen_since
    since = watch.unmoving.since
    if since is not None and frozen >= 2 * stall and now - since >= stall:
        says = (
            f"hung {watch.phases.place()}: CPU or GPU is used, but no log line,"
            f" nothing read, and every rank at the same line for"
            f" {show_seconds(now - since)}: they wait for each other in a loop"
        )
        return _hung(watch, says, now)
    return None


def _hung(watch: Judge, says: str, now: float) -> Verdict:
    return standing(watch, Outcome.HUNG, says, now)


def standing(watch: Judge, outcome: Outcome, says: str, now: float) -> Verdict:
    """With the stacks, and what they and the states of the processes tell."""
    assert watch.sample is not None or outcome is Outcome.UNHEALTHY
    processes = watch.sample.watched if watch.sample else ()
    groups = group(watch.dumps)
    stopped = [one for one in processes if one.state == "T"]
    blocked = [one for one in processes if one.state == "D"]
    details = describe(groups)
    for why in dict.fromkeys(one.why for one in watch.dumps if one.why):
        some = join_ranks([one.rank for one in watch.dumps if one.why == why])
        details.append(f"no stack of {some}: {why}")
    odd = say_odd(groups)
    if odd:
        details.insert(0, odd)
    rank = None
    if stopped:
        names = join_ranks([one.rank for one in stopped])
        pids = " ".join(str(one.pid) for one in stopped)
        details.insert(0, f"{names} is stopped (SIGSTOP, or a debugger holds it)")
        next_step = f"kill -CONT {pids}"
        rank, cause = stopped[0].rank, "stopped"
    elif blocked:
        names = join_ranks([one.rank for one in blocked])
        details.insert(0, f"{names} waits for a disk or a mount (state D)")
        next_step = "does the file system of the checkpoint answer? ls it"
        rank, cause = blocked[0].rank, "disk"
    elif odd:
        rank = next(one.ranks[0] for one in groups if one.odd)
        next_step, cause = (
            "look at what the rank that differs waits for",
            "rank-differs",
        )
    elif groups and all(one.collective for one in groups):
        next_step = (
            "every rank waits in a collective: one that is not on this host, or a"
            " network between them; NCCL_DEBUG=INFO says more"
        )
        cause = "collective"
    else:
        next_step, cause = "the innermost frames say what is waited for", ""
    return watch.verdict(
        outcome,
        says,
        now,
        next=next_step,
        cause=cause,
        rank=rank,
        details=tuple(details),
        groups=groups,
        dumps=watch.dumps,
    )


def _waits_for_other_nodes(watch: Judge) -> bool:
    told = watch.phases.arguments
    label = watch.phases.label()
    early = label == Stage.START.value or Stage.DISTRIBUTED.value in label
    return told is not None and told.nodes > 1 and early
