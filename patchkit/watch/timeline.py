"""The phases of all ranks as a picture: one HTML file with an SVG in it. No I/O."""

from __future__ import annotations

from html import escape

from patchkit.watch.events import Stage
from patchkit.watch.phases import Phases
from patchkit.watch.progress import show_seconds
from patchkit.watch.ranks import show_rank
from patchkit.watch.spans import SERVER, Span
from patchkit.watch.verdict import Outcome, Verdict

WIDTH, LEFT, RIGHT, TOP = 1000, 110, 20, 34
ROW, GAP = 30, 8
#: Shades that are told apart without colour vision, too (Okabe and Ito).
COLOURS = {
    Stage.START: "#c9ced6",
    Stage.DISTRIBUTED: "#e69f00",
    Stage.WEIGHTS: "#0072b2",
    Stage.MEMORY: "#009e73",
    Stage.GRAPHS: "#cc79a7",
    Stage.WARMUP: "#56b4e9",
    Stage.OTHER: "#f0e442",
}
_DARK = {Stage.WEIGHTS, Stage.MEMORY}
_GOOD = (Outcome.READY, Outcome.REACHED)


def timeline_html(phases: Phases, verdict: Verdict) -> str:
    """A page that needs nothing else: the picture, and the verdict in words."""
    words = [f"<p><b>{escape(verdict.outcome.value)}</b> {escape(verdict.says)}</p>"]
    if verdict.next:
        words.append(f"<p>next: {escape(verdict.next)}</p>")
    if verdict.details:
        words.append(f"<pre>{escape(chr(10).join(verdict.details))}</pre>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<title>patchkit watch</title><style>body{font:14px/1.4 system-ui,sans-serif;"
        "margin:24px;color:#1a1d21}pre{background:#f4f5f7;padding:12px;overflow:auto}"
        "</style></head><body>\n"
        + timeline_svg(phases, verdict)
        + "\n"
        + "\n".join(words)
        + "\n</body></html>\n"
    )


def timeline_svg(phases: Phases, verdict: Verdict) -> str:
    """A row for each rank and one for the server, over seconds since the start."""
    began = phases.began or 0.0
    lasted = max(phases.last - began, 1.0)
    ranks = phases.ranks
    rows = [*ranks, SERVER] if any(s.rank == SERVER for s in phases.spans) else ranks
    rows = rows or [SERVER]
    height = TOP + len(rows) * (ROW + GAP) + 84
    scale = (WIDTH - LEFT - RIGHT) / lasted

    def x(at: float) -> float:
        return LEFT + (at - began) * scale

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif"'
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    bottom = TOP + len(rows) * (ROW + GAP)
    for tick in ticks(lasted):
        at = LEFT + tick * scale
        parts.append(
            f'<line x1="{at:.1f}" y1="{TOP - 6}" x2="{at:.1f}" y2="{bottom}"'
            ' stroke="#d7dbe0"/>'
            f'<text x="{at:.1f}" y="{TOP - 12}" text-anchor="middle" fill="#5b6470">'
            f"{escape(show_tick(tick))}</text>"
        )
    for index, rank in enumerate(rows):
        y = TOP + index * (ROW + GAP)
        name = "server" if rank == SERVER else show_rank(rank)
        failed = verdict.outcome not in _GOOD and verdict.rank == rank and rank in ranks
        weight = ' font-weight="bold" fill="#c0392b"' if failed else ""
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + ROW / 2 + 4}" text-anchor="end"{weight}>'
            f"{escape(name)}</text>"
        )
        mine = [one for one in phases.spans if one.rank == rank]
        first = mine[0].began if mine else phases.last
        parts.append(_bar(Span(rank, Stage.START, "", "", began, first), x, y, phases))
        parts += [_bar(one, x, y, phases) for one in mine]
        if failed:
            parts.append(_cross(x(phases.last), y + ROW / 2))
    end = x(phases.last)
    colour = "#1e8449" if verdict.outcome in _GOOD else "#c0392b"
    parts.append(
        f'<line x1="{end:.1f}" y1="{TOP - 6}" x2="{end:.1f}" y2="{bottom}"'
        f' stroke="{colour}" stroke-width="2"/>'
        f'<text x="{end - 6:.1f}" y="{bottom + 16}" text-anchor="end" fill="{colour}"'
        f' font-weight="bold">{escape(verdict.outcome.value)} after'
        f" {escape(show_seconds(phases.last - began))}</text>"
    )
    parts += _legend(phases, bottom + 40)
    return "\n".join([*parts, "</svg>"])


def _bar(span: Span, x, y: float, phases: Phases) -> str:  # type: ignore[no-untyped-def]
    ended = span.ended if span.ended is not None else phases.last
    left = x(span.began)
    # a span shorter than a pixel is still to be seen
    width = max(x(ended) - left, 2.0)
    fill = COLOURS[span.stage]
    took = f"{span.name or span.stage.value} {span.model}".strip()
    title = f"{show_rank(span.rank)}: {took}, {show_seconds(ended - span.began)}"
    height = ROW - 14 if span.stage is Stage.START else ROW
    top = y + (ROW - height) / 2
    text = ""
    if span.stage is not Stage.START and width > 7 * len(span.label) + 8:
        ink = "#ffffff" if span.stage in _DARK else "#1a1d21"
        text = (
            f'<text x="{left + width / 2:.1f}" y="{y + ROW / 2 + 4}"'
            f' text-anchor="middle" fill="{ink}">{escape(span.label)}</text>'
        )
    hatched = (
        ' stroke="#1a1d21" stroke-dasharray="3 2"' if span.model == "draft" else ""
    )
    return (
        f'<g><title>{escape(title)}</title><rect x="{left:.1f}" y="{top:.1f}"'
        f' width="{width:.1f}" height="{height}" rx="2" fill="{fill}"{hatched}/>'
        f"{text}</g>"
    )


def _cross(x: float, y: float) -> str:
    return (
        f'<path d="M{x - 7:.1f} {y - 7:.1f} l14 14 m0 -14 l-14 14" stroke="#c0392b"'
        ' stroke-width="3" fill="none"/>'
    )


def _legend(phases: Phases, y: float) -> list[str]:
    present = {Stage.START} | {one.stage for one in phases.spans}
    found, x = [], float(LEFT)
    for stage in COLOURS:
        if stage not in present:
            continue
        found.append(
            f'<rect x="{x}" y="{y - 10}" width="12" height="12"'
            f' fill="{COLOURS[stage]}"/><text x="{x + 18}" y="{y}">'
            f"{escape(stage.value)}</text>"
        )
        x += 30 + 8 * len(stage.value) + 16
    if any(one.model == "draft" for one in phases.spans):
        found.append(
            f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="none"'
            f' stroke="#1a1d21" stroke-dasharray="3 2"/>'
            f'<text x="{x + 18}" y="{y}">draft</text>'
        )
    return found


def ticks(lasted: float) -> list[float]:
    """At most ten round numbers of seconds."""
    for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600):
        if lasted / step <= 10:
            break
    else:
        step = int(lasted / 10) + 1
    return [float(step * i) for i in range(int(lasted / step) + 1)]


def show_tick(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:g} min"
    return f"{seconds / 3600:g} h"
