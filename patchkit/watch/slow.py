"""The verdict on a server that still loads when time is up, or its log ends. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.watch.progress import show_seconds
from patchkit.watch.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from patchkit.watch.judge import Judge


def judge(watch: Judge, now: float) -> Verdict:
    if not watch.settings.has_log and watch.settings.url:
        return _by_health(watch, now)
    phases, seen = watch.phases, watch.progress(now)
    unseen = watch.sample is None or not watch.sample.watched
    if watch.settings.has_log and unseen and not watch.last_lines:
        return _without_lines(watch, now)
    over = phases.last if watch.log_ended else now
    took = show_seconds(max(0.0, over - (phases.began or watch.began)))
    parts = [f"{phases.place()}, {took} after its start"]
    if seen.fraction is not None:
        parts.append(f"at {100 * seen.fraction:.0f}% ({seen.counted})")
    opening, next_step = "still loading, ", "wait longer (--timeout)"
    if watch.log_ended:
        opening = "the log ends "
        next_step = "is the server still there? patchkit watch --log FILE follows it"
    else:
        if seen.eta is not None:
            parts.append(f"about {show_seconds(seen.eta)} to go in this phase")
        if unseen:
            next_step = "give --pid, so that slow can be told from stuck"
        else:
            parts += _standing(watch, now)
    says = opening + ", ".join(parts)
    return watch.verdict(Outcome.LOADING, says, now, next=next_step)


def _without_lines(watch: Judge, now: float) -> Verdict:
    """Nothing is known but the wait."""
    says = f"the log has no line after {show_seconds(now - watch.began)}"
    if watch.log_ended:
        says = "the log ended, and had no line"
    step = "is it the log that the server writes, its stderr (2>&1) too?"
    return watch.verdict(Outcome.LOADING, says, now, next=step, phases=())


def _by_health(watch: Judge, now: float) -> Verdict:
    """Nothing but ``/health`` tells how far it is."""
    settings, health = watch.settings, watch.answers.latest.get("/health")
    spent = show_seconds(now - watch.began)
    if health is not None and health.status:
        says = f"not ready after {spent}: /health says {health.status}"
    else:
        why = f": {health.error}" if health is not None and health.error else ""
        says = f"nobody answers at {settings.url} after {spent}{why}"
    step = "wait longer (--timeout); --log FILE or --pid PID tells what it does"
    return watch.verdict(Outcome.LOADING, says, now, next=step, phases=())


def judge_unanswered(watch: Judge, now: float) -> Verdict:
    """It says that it is ready, and time is up before a request was answered."""
    asked = watch.answers.latest.get("/generate")
    if asked is None:
        what = f"no request was answered within {show_seconds(watch.settings.timeout)}"
        step = "wait longer (--timeout)"
    elif not asked.status and not asked.late:
        what = f"nobody answers: {asked.error}"
        step = "--url http://host:port says where it listens"
    else:
        what = "its engine is at work for others, and answered no request of ours"
        step = "wait longer (--timeout, --deadline), or --no-request"
    says = f"it says that it is ready, but {what}"
    return watch.verdict(Outcome.LOADING, says, now, next=step)


def _standing(watch: Judge, now: float) -> list[str]:
    """What speaks for a hang, though it is not proven."""
    quiet, frozen = watch.quiet(now), now - watch.stall.frozen_since
    if quiet > 5:
        return [f"nothing has moved for {show_seconds(quiet)}"]
    if frozen < watch.settings.stall:
        return []
    why = next((one.why for one in watch.dumps if one.why), "the stacks change")
    return [
        "CPU or GPU is used, but there was no line and nothing was read for"
        f" {show_seconds(frozen)} ({why})"
    ]
