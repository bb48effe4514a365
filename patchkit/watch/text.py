"""A watch in words: the line while it goes on, and the verdict. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.report.style import Style, wrap
from patchkit.watch.events import Event
from patchkit.watch.progress import show_bytes, show_seconds
from patchkit.watch.status import Status
from patchkit.watch.verdict import Outcome, Verdict

_COLOURS = {
    Outcome.READY: "green",
    Outcome.REACHED: "green",
    Outcome.LOADING: "yellow",
    Outcome.STOPPED: "yellow",
}


def status_line(status: Status) -> str:
    """All in one line, the most important first."""
    ranks = [status.spread] if status.spread else []
    return " | ".join([*headline(status), *ranks, *usage(status)])


def headline(status: Status) -> list[str]:
    """The phase, and how far it is."""
    seen = status.progress
    parts = [status.phase]
    if seen.fraction is not None:
        parts[0] += f" {100 * seen.fraction:.0f}%"
    if seen.eta is not None:
        parts.append(f"ETA {show_seconds(seen.eta)}")
    if seen.counted:
        parts.append(seen.counted)
    if seen.least is not None and seen.most is not None and status.ranks > 1:
        parts.append(f"ranks {100 * seen.least:.0f}-{100 * seen.most:.0f}%")
    elif status.ranks > 1:
        parts.append(f"{status.ranks} ranks")
    parts.append(f"{show_seconds(status.in_phase)} in it")
    if status.quiet >= 5:
        parts.append(f"nothing moves for {show_seconds(status.quiet)}")
    return parts


def underline(status: Status) -> list[str]:
    """The time since the start, ranks that are elsewhere, and what they use."""
    ranks = [status.spread] if status.spread else []
    return [f"{show_seconds(status.elapsed)} in all", *ranks, *usage(status)]


def usage(status: Status) -> list[str]:
    """Memory, CPU and GPU use, where known."""
    parts = []
    if status.memory:
        cpu = f", CPU {status.cpu:.0f}%" if status.cpu is not None else ""
        parts.append(f"{show_bytes(status.memory)}{cpu}")
    if status.gpu:
        low, high = min(status.gpu), max(status.gpu)
        parts.append(f"GPU {low}%" if low == high else f"GPU {low}-{high}%")
    return parts


def verdict_text(verdict: Verdict, style: Style, server: Sequence[str] = ()) -> str:
    """The verdict, what led to it, what became of the server, and the next step."""
    colour = _COLOURS.get(verdict.outcome, "red")
    name = style(verdict.outcome.value, colour, "bold")
    width = max(40, style.width - 8) if style.width else 10_000
    head, *more = wrap(verdict.says, width - len(verdict.outcome.value) - 1)
    lines = [f"{name} {head}", *(f"  {one}" for one in more)]
    if verdict.phases:
        spent = ", ".join(f"{name} {show_seconds(s)}" for name, s in verdict.phases)
        lines += [style(f"  {one}", "dim") for one in wrap(spent, min(76, width))]
    told = [*verdict.details, *(f"note: {one}" for one in verdict.notes)]
    for one in told:
        # frames of a stack keep their shape
        prose = not one.startswith(" ") and len(one) > width
        lines += [f"  {part}" for part in (wrap(one, width) if prose else [one])]
    for one in server:
        lines += [f"  {part}" for part in wrap(one, width)]
    if verdict.next:
        first, *rest = wrap(verdict.next, min(72, width))
        lines.append(f"{style('next:', 'bold')} {first}")
        lines += [f"      {one}" for one in rest]
    return "\n".join(lines)


def about_server(pid: int, runs: bool, ended: bool, log: str) -> list[str]:
    """What became of a server that was started by us; ``ended``: by us, too."""
    if runs:
        says = f"the server runs on, process {pid}: kill {pid} ends it"
    elif ended:
        says = f"the server, process {pid}, was ended with all that it started"
    else:
        says = f"the server, process {pid}, has ended"
    return [says, f"its log: {log}"]


def event_json(event: Event) -> dict[str, object]:
    return {
        "rank": event.line.rank,
        "stage": event.stage.value,
        "name": event.name,
        "text": event.line.text[:500],
    }


def status_json(status: Status) -> dict[str, object]:
    seen = status.progress
    return {
        "phase": status.phase,
        "percent": None if seen.fraction is None else round(100 * seen.fraction, 1),
        "eta_s": None if seen.eta is None else round(seen.eta, 1),
        "counted": seen.counted,
        "rank_percent": None
        if seen.least is None or seen.most is None
        else [round(100 * seen.least, 1), round(100 * seen.most, 1)],
        "spread": status.spread,
        "ranks": status.ranks,
        "elapsed_s": round(status.elapsed, 1),
        "in_phase_s": round(status.in_phase, 1),
        "memory_bytes": status.memory,
        "cpu_percent": None if status.cpu is None else round(status.cpu, 1),
        "gpu_percent": list(status.gpu) if status.gpu is not None else None,
        "quiet_s": round(status.quiet, 1),
    }


def durations_of(text: str) -> float:
    """Seconds of "90", "90s", "30m", "1h30m". Raises ValueError."""
    import re

    found = re.fullmatch(
        r"(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+(?:\.\d+)?)s?)?", text.strip()
    )
    if not found or not any(found.groups()):
        raise ValueError(text)
    hours, minutes, seconds = (float(one or 0) for one in found.groups())
    return 3600 * hours + 60 * minutes + seconds
