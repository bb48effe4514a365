"""The verdict on a server that died: the first failing rank, not its victims. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from patchkit.watch.causes import find_cause, signal_cause
from patchkit.watch.phases import Phases
from patchkit.watch.ranks import show_rank
from patchkit.watch.tracebacks import Traceback, first_cause
from patchkit.watch.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from patchkit.watch.judge import Judge

#: Lines of a traceback that are shown: its head and its end.
HEAD, END = 3, 24


def judge(watch: Judge, now: float) -> Verdict:
    found = first_cause(watch.tracebacks.found)
    killed = _killed(watch)
    if killed is not None and (found is None or found.is_victim):
        rank, status = killed
        return _by_signal(watch, rank, status, now)
    if found is not None:
        return _by_traceback(watch, found, now)
    if watch.failure is not None:
        return _by_line(watch, watch.failure.text, watch.failure.rank or None, now)
    return _without_word(watch, now)


def _by_traceback(watch: Judge, found: Traceback, now: float) -> Verdict:
    rank = _whose(watch.phases, found)
    who = "the server" if rank is None else show_rank(rank)
    error = found.error or found.lines[-1]
    also = watch.failure.text if watch.failure and not found.fatal else ""
    return _verdict(
        watch,
        now,
        f"{who} failed {watch.phases.place(rank)}: {_shorten(error)}",
        f"{also}\n{found.text}",
        rank,
        tuple(_excerpt(found.lines)),
    )


def _whose(phases: Phases, found: Traceback) -> str | None:
    """The rank that a traceback is of; ``None``: the server's first process."""
    if found.rank or "Scheduler" in found.header:
        return found.rank
    return None


def _by_line(watch: Judge, text: str, rank: str | None, now: float) -> Verdict:
    who = show_rank(rank) if rank else "the server"
    return _verdict(
        watch,
        now,
        f"{who} failed {watch.phases.place(rank)}: {_shorten(text)}",
        text,
        rank,
    )


def _verdict(
    watch: Judge,
    now: float,
    says: str,
    text: str,
    rank: str | None,
    details: tuple[str, ...] = (),
) -> Verdict:
    cause = find_cause(text)
    name, likely, next_step = cause or ("", "", "the traceback names the line")
    return watch.verdict(
        Outcome.CRASHED,
        says,
        now,
        rank=rank,
        cause=name,
        next=next_step,
        details=(*([f"likely cause: {likely}"] if likely else []), *details),
    )


def _killed(watch: Judge) -> tuple[str | None, int] | None:
    """The process that a signal ended (a rank, or ``None``: the server), and which."""
    said = [line.text for line in watch.aftermath]
    said += [one.error for one in watch.tracebacks.found]
    told = [re.search(r"(?:^Exit code: |exit code:? )-(\d+)", text) for text in said]
    numbers = [int(one[1]) for one in told if one]
    named = [re.search(r"Rank (\d+) scheduler", text) for text in said]
    names = [_label(watch.phases, int(one[1])) for one in named if one]
    for rank, status in watch.gone.items():
        if status is not None and status < 0:
            return rank, -status
    if numbers:
        gone = list(watch.gone)
        return (names or gone or [""])[0], numbers[0]
    # the rank that is gone while others only lost their connection to it
    speakers = {one.rank for one in watch.tracebacks.found if one.fatal}
    if watch.first_gone is not None and watch.first_gone not in speakers:
        return watch.first_gone, 0
    code = watch.sample.exit_code if watch.sample else None
    if code is not None and code < 0 and watch.first_gone is None:
        return None, -code
    return None


def _label(phases: Phases, number: int) -> str:
    """SGLang counts schedulers in the order in which it starts them."""
    ranks = phases.ranks
    return ranks[number] if number < len(ranks) else f"TP{number}"


def _by_signal(watch: Judge, rank: str | None, number: int, now: float) -> Verdict:
    who = "the server" if rank is None else show_rank(rank)
    if number:
        name, likely, next_step = signal_cause(number)
    else:
        name, likely, next_step = (
            "gone",
            "it left no traceback, so something outside ended it: the kernel's"
            " out-of-memory killer, or somebody",
            "dmesg -T | grep -i kill, or the container's memory limit, tells which",
        )
    victims = [one for one in watch.tracebacks.found if one.fatal]
    more = ""
    if victims:
        lost = ", ".join(sorted({show_rank(one.rank) for one in victims}))
        more = f"; {lost} then lost its connection"
    what = f"was ended by {likely}" if number else "is gone"
    details = () if number else (f"likely cause: {likely}",)
    return watch.verdict(
        Outcome.CRASHED,
        f"{who} {what} {watch.phases.place(rank)}{more}",
        now,
        rank=rank,
        cause=name,
        next=next_step,
        details=details,
    )


def _without_word(watch: Judge, now: float) -> Verdict:
    code = watch.sample.exit_code if watch.sample else None
    ended = f" with exit code {code}" if code is not None else ""
    text = "\n".join(watch.last_lines)
    if watch.log_ended and (watch.sample is None or watch.sample.root is None):
        place = watch.phases.place()
        says = f"the log ends {place}, without READY and without a failure"
    else:
        says = f"the server ended{ended} {watch.phases.place()}"
    if watch.log_is_full:
        likely = "its log can't be written: the disk of the log is full"
        cause: tuple[str, str, str] | None = (
            *("log-disk-full", likely),
            "make room there (df -h), or give --log FILE on another disk",
        )
    else:
        cause = find_cause(text)
    if cause is None and not watch.settings.has_log:
        cause = "", "", "give --log FILE, too: it says why"
    elif cause is None and not text:
        cause = "", "", "it wrote nothing: is it the right command?"
    name, likely, step = cause or ("", "", "the last lines of the log are above")
    details = ([f"likely cause: {likely}"] if likely else []) + last_lines(watch)
    return watch.verdict(
        Outcome.CRASHED, says, now, cause=name, next=step, details=tuple(details)
    )


def last_lines(watch: Judge) -> list[str]:
    """The end of the log under its heading; nothing of an empty one."""
    lines = [f"  {one}" for one in list(watch.last_lines)[-8:]]
    return ["last lines of the log:", *lines] if lines else []


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:297] + "..."


def _excerpt(lines: list[str]) -> list[str]:
    if len(lines) <= HEAD + END:
        return lines
    left_out = len(lines) - HEAD - END
    return [*lines[:HEAD], f"  ... {left_out} lines", *lines[-END:]]
