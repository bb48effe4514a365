"""The verdict on a log that no process writes any more. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.watch.crash import last_lines
from patchkit.watch.progress import show_seconds
from patchkit.watch.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from patchkit.watch.judge import Judge


def judge(watch: Judge, now: float) -> Verdict | None:
    """``None`` while somebody writes it, or may yet: a server that is only just being
    started has no process, and what its log says is of the one before."""
    if watch.unwritten_since is None:
        return None
    settings = watch.settings
    silent = now - max(watch.unwritten_since, watch.last_line)
    if silent < (settings.deadline if watch.is_up else settings.stall):
        return None
    phases = watch.phases
    if watch.surely_unwritten:
        old = now - phases.last if phases.last else silent
        says = (
            f"the server is gone, {phases.place()}: no process writes its log any"
            f" more, and its last line is {show_seconds(old)} old"
        )
        phases.over = True
        details = tuple(last_lines(watch))
        step = "start it again; dmesg -T | grep -i kill tells whether it was killed"
        return watch.verdict(
            Outcome.CRASHED, says, now, cause="gone", next=step, details=details
        )
    if watch.is_up and not watch.is_confirmed:
        says = (
            "the log says READY, but no process was found that writes it, and nobody"
            " was asked"
        )
        step = "--url http://host:port asks it; --no-request believes the log"
        return watch.verdict(Outcome.UNHEALTHY, says, now, next=step, cause="unseen")
    return None
