"""A report as text for people and as JSON for programs. No I/O."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Any

from patchkit.logs.finding import ERROR, NOTE, WARNING, Finding
from patchkit.logs.reading import Report
from patchkit.logs.record import Where
from patchkit.logs.sketch import ERROR as SKETCH_ERROR
from patchkit.logs.sketch import EXACT
from patchkit.logs.table import VARIANTS, Row
from patchkit.report.style import Style

_COLOUR = {ERROR: "red", WARNING: "yellow", NOTE: "cyan"}
#: Columns that are there without a terminal, too: a report is sent around.
WIDTH = 80
_BRIEF = 22


def report_text(report: Report, style: Style) -> str:
    width = max(style.width, 60) if style.width else WIDTH
    lines = [*_summary(report, style), ""]
    if report.rows:
        lines += [*_table(report, style, width), ""]
    lines += findings_text(report.findings, style, width)
    return "\n".join(lines)


def _summary(report: Report, style: Style) -> list[str]:
    count = len(report.files)
    head = (
        f"{report.total('records'):,} records in {report.total('lines'):,} lines of"
        f" {count} {'files' if count != 1 else 'file'}"
    )
    lines = [style(head, "bold")]
    said = []
    if report.ranks:
        said.append(f"ranks {numbers(report.ranks)}")
    said += [
        f"{model} steps {first}-{last}" for model, (first, last) in report.steps.items()
    ]
    lines += textwrap.wrap("; ".join(said), WIDTH - 2, initial_indent="  ",
                           subsequent_indent="  ")  # fmt: skip
    compared = report.compared
    text = f"compared: {compared['states']:,} states on their way"
    if compared["states_not_comparable"]:
        text += f" ({compared['states_not_comparable']:,} more can't be)"
    text += f", {compared['between_ranks']:,} between ranks"
    extra = (
        [f"{report.total('notes'):,} notes of the taps"]
        if report.total("notes")
        else []
    )
    extra += [f"{report.total('bad'):,} bad lines"] if report.total("bad") else []
    extra += [f"{len(report.saved):,} saved tensors"] if report.saved else []
    return [
        *lines,
        *(style(f"  {one}", "dim") for one in (text, ", ".join(extra)) if one),
    ]


# -- the table ----------------------------------------------------------------------


def _table(report: Report, style: Style, width: int) -> list[str]:
    head = (
        f"  {'layer':>5} {'count':>8} {'shapes':<17} {'norm 1%':>8} {'50%':>8}"
        f" {'99%':>8} {'abs max':>8} {'NaN/Inf':>8}"
    )
    lines = [style(head, "dim")]
    before = None
    for row in report.rows:
        if (row.site, row.model) != before:
            before = (row.site, row.model)
            lines.append(_site(row, report.rows, style))
        lines.append(_row(row, style))
    note = "norm: of a row, root mean square over a tensor's rows"
    if any("norm" in one.text for one in report.findings):
        note += " (findings tell those of whole tensors)"
    if any(row.row_norm.count > EXACT for row in report.rows):
        note += f"; percentiles within {SKETCH_ERROR:.0%}"
    return [*lines, *(style(f"  {one}", "dim") for one in _wrapped(note, width - 2))]


def _site(row: Row, rows: Sequence[Row], style: Style) -> str:
    same = [one for one in rows if (one.site, one.model) == (row.site, row.model)]
    about = [row.model] if row.model and not row.site.startswith(row.model) else []
    about += sorted(set().union(*(one.dtypes for one in same)))
    about += sorted(set().union(*(one.modes for one in same)))
    return f"{style(row.site, 'bold')}  {style(', '.join(about), 'dim')}".rstrip()


def _row(row: Row, style: Style) -> str:
    layer = "" if row.layer is None else str(row.layer)
    norms = [row.row_norm.percentile(one) for one in (1, 50, 99)]
    cells = " ".join(f"{short(one):>8}" for one in norms)
    nonfinite = (
        f"{row.nonfinite:>8,}"
        if row.nonfinite < 10_000_000
        else f"{row.nonfinite:>8.1e}"
    )
    line = (
        f"  {layer:>5} {row.count:>8,} {shapes(row):<17} {cells} {short(row.absmax):>8}"
        f" {style(nonfinite, 'red') if row.nonfinite else nonfinite}"
    )
    if row.fc:
        said = ", ".join(f"{word} {count:,}" for word, count in sorted(row.fc.items()))
        line += "\n" + style(f"        fc {said}", "dim")
    if row.unknown:
        line += "\n" + style(f"        {row.unknown:,} without statistics", "dim")
    return line


def shapes(row: Row) -> str:
    """``1-16 x 7168``: all axes but the last vary; ``?`` if no shape was said."""
    found = row.shapes
    if not found:
        return "?"
    if any(len(one) != 2 for one in found):
        text = ",".join("x".join(map(str, one)) or "scalar" for one in found)
        return text if len(text) <= 17 else f"{len(found)} shapes"
    rows = [one[0] for one in found]
    text = ",".join(map(str, rows))
    end = f" x {found[0][-1]}"
    if len(text) + len(end) > 17 or len(row.variants) >= VARIANTS:
        text = f"{rows[0]}-{rows[-1]}"
    return text + end


def short(value: float | None) -> str:
    """At most eight columns."""
    if value is None:
        return "?"
    text = f"{value:.4g}"
    return text if len(text) <= 8 else f"{value:.1e}"


def numbers(values: Sequence[int]) -> str:
    """``0-3, 5``"""
    parts: list[list[int]] = []
    for one in values:
        if parts and one == parts[-1][-1] + 1:
            parts[-1][1:] = [one]
        else:
            parts.append([one])
    return ", ".join("-".join(map(str, one)) for one in parts)


# -- findings -----------------------------------------------------------------------


def findings_text(
    findings: Sequence[Finding], style: Style, width: int = WIDTH
) -> list[str]:
    if not findings:
        return [style("nothing found", "green")]
    lines = []
    for one in findings:
        lines += finding_text(one, style, width)
    counts = [
        f"{n} {name}{'s' if n != 1 else ''}"
        for name in (ERROR, WARNING, NOTE)
        if (n := sum(one.severity == name for one in findings))
    ]
    worst = findings[0].severity
    lines.append(style(", ".join(counts), "bold", _COLOUR[worst]))
    return lines


def finding_text(finding: Finding, style: Style, width: int = WIDTH) -> list[str]:
    label = style(f"{finding.severity}:", _COLOUR[finding.severity], "bold")
    times = (
        f" ({finding.count:,} times)"
        if finding.count > 1 and finding.name != "bad-lines"
        else ""
    )
    indent = " " * (len(finding.severity) + 2)
    named = f"{finding.title}{times} [{finding.name}]"
    first, *more = _wrapped(named, width - len(indent))
    lines = [
        f"{label} {style(first, 'bold')}",
        *(indent + style(m, "bold") for m in more),
    ]
    lines += [f"  {line}" for line in _wrapped(finding.text, width - 2)]
    if finding.hint:
        first, *more = _wrapped(finding.hint, width - 8)
        lines += [f"  next: {first}", *(f"        {line}" for line in more)]
    if finding.evidence:
        shown = _places(finding.evidence)
        if finding.count > len(finding.evidence):
            shown += ", ..."
        lines += [
            style(f"  {line}", "dim") for line in _wrapped(f"at {shown}", width - 2)
        ]
    return [*lines, ""]


def _places(evidence: Sequence[Where]) -> str:
    """``a.log:3, 17, b.log:4``"""
    parts, file = [], None
    for one in evidence:
        parts.append(str(one.line) if one.file == file else str(one))
        file = one.file
    return ", ".join(parts)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 30), break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


# -- JSON ---------------------------------------------------------------------------


def report_json(report: Report) -> dict[str, Any]:
    return {
        "records": report.total("records"),
        "lines": report.total("lines"),
        "bytes": report.total("bytes"),
        "notes": report.total("notes"),
        "bad": report.total("bad"),
        "ranks": report.ranks,
        "steps": {model: list(steps) for model, steps in report.steps.items()},
        "compared": report.compared,
        "files": {
            name: {
                key: sum(getattr(one, key) for one in many)
                for key in ("bytes", "lines", "records", "notes", "bad")
            }
            for name, many in report.files.items()
        },
        "table": [row.as_json() for row in report.rows],
        "findings": [finding_json(one) for one in report.findings],
        "saved": report.saved,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    value = dataclasses.asdict(finding)
    value["evidence"] = [
        {"file": one.file, "line": one.line} for one in finding.evidence
    ]
    return value
