"""The verdicts on a server that answers, and not as it should. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.watch.hang import standing
from patchkit.watch.progress import show_seconds
from patchkit.watch.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from patchkit.watch.judge import Judge

#: Seconds before the end of a request in which what else was said counts.
MEANWHILE = 60.0


def judge(watch: Judge, now: float) -> Verdict | None:
    """It got ready, and requests come to nothing; ``None`` while its stacks, of a
    server that is silent, are not taken."""
    answers = watch.answers
    answer = answers.latest["/generate"]
    if answer.status:
        told = f": {answer.error}" if answer.error else ""
        says = f"ready, but it answers a request of one token with {answer.status}"
        return _without_stacks(watch, f"{says}{told}", now)
    if watch.sample is not None and watch.sample.watched and not watch.dumps:
        return None
    if answer.late:
        what = f"a request of one token had no answer in {show_seconds(answer.seconds)}"
    elif answers.answered:
        what = f"no request gets through any more: {answer.error}"
    else:
        what = f"no request gets through: {answer.error}"
    alive = []
    for path in ("/model_info", "/health"):
        other = answers.latest.get(path)
        # not what was said long ago, before it got into trouble
        if other is not None and other.status and other.at >= answer.at - MEANWHILE:
            alive.append(f"{path} said {other.status} in {other.seconds:.2f} s")
    also = f", while {' and '.join(alive)}" if answer.late and alive else ""
    says = f"ready, but {what}{also}"
    if not watch.dumps:
        return _without_stacks(watch, says, now)
    return standing(watch, Outcome.UNHEALTHY, says, now)


def _without_stacks(watch: Judge, says: str, now: float) -> Verdict:
    has_log = watch.settings.has_log
    step = "its log says why" if has_log else "its log says why: give --log FILE, too"
    return watch.verdict(Outcome.UNHEALTHY, says, now, next=step)


def judge_other(watch: Judge, now: float) -> Verdict | None:
    """What answers is no SGLang, or lets nobody in."""
    answers, settings = watch.answers, watch.settings
    denied, foreign = answers.denied, answers.foreign
    if denied is not None:
        says = f"/health says {denied.status}: " + (
            "the key that was given is refused" if settings.key else "it asks for a key"
        )
        step = "--api-key KEY, or PATCHKIT_API_KEY, says with which to ask"
        cause = "key"
    elif foreign is not None:
        says = f"no SGLang answers at {settings.url}: {foreign.foreign}"
        step = "give the server's own address, as in --url http://127.0.0.1:30000"
        cause = "no-sglang"
    else:
        return None
    more = {"next": step, "cause": cause, "phases": ()}
    return watch.verdict(Outcome.UNHEALTHY, says, now, **more)
