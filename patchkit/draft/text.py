"""A report of check-draft for people: it fits 80 columns. Pure."""

from __future__ import annotations

from patchkit.draft.finding import CHECKS, Finding, Severity
from patchkit.draft.run import Report
from patchkit.report.style import Style, wrap

WIDTH = 79
_NAME, _WORD = 14, 9
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def report_text(report: Report, style: Style) -> str:
    lines = _head(report, style)
    for row in report.rows:
        mine = [one for one in report.findings if one.check == row.check]
        worst = _worst(mine)
        if worst in (Severity.ERROR, Severity.WARNING):
            assert worst is not None
            said = "; ".join(o.code for o in mine if o.severity is not Severity.NOTE)
            lines += _row(row.check, worst.value, said, style, _COLOURS[worst])
        elif row.skipped:
            lines += _row(row.check, "-", f"not checked: {row.skipped}", style, "dim")
        else:
            lines += _row(row.check, "ok", row.said, style, "green")
    for severity in Severity:
        found = [one for one in report.findings if one.severity is severity]
        for one in found:
            lines += ["", *_finding(one, report, style)]
    return "\n".join([*lines, "", _summary(report, style)])


def _head(report: Report, style: Style) -> list[str]:
    draft = report.checkpoint
    total = len(draft.tensors)
    size = sum(one.end - one.begin for one in draft.tensors.values())
    weight = f", {_bytes(size)}" if size else ""
    lines = [
        style(f"SGLang {report.version}", "bold") + f" at {report.package}",
        f"draft:  {draft.folder}",
        *_wrapped("        ", f"{report.kind.text}; {total} tensors{weight}"),
        f"target: {report.target_class or 'of no named class'}",
    ]
    if report.recipes:
        lines.append(f"as if:  {', '.join(report.recipes)} applied; nothing is written")
    if report.assumed:
        lines.append(f"as if:  its class were {report.assumed}")
    return [*lines, ""]


def _bytes(count: int) -> str:
    for name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count} bytes"


def _row(name: str, word: str, said: str, style: Style, colour: str) -> list[str]:
    margin = _NAME + _WORD
    first, *more = wrap(said, WIDTH - margin) or [""]
    head = style(f"{name:<{_NAME}}", "bold") + style(f"{word:<{_WORD}}", colour)
    return [f"{head}{first}".rstrip(), *(" " * margin + line for line in more)]


def _worst(findings: list[Finding]) -> Severity | None:
    order = list(Severity)
    return min((one.severity for one in findings), key=order.index, default=None)


def _finding(one: Finding, report: Report, style: Style) -> list[str]:
    label = f"{one.severity.value} {one.code}"
    first, *more = wrap(f"{label}: {one.text}", WIDTH) or [""]
    lines = [first.replace(label, style(label, "bold", _COLOURS[one.severity]), 1)]
    lines += ["  " + line for line in more]
    for text in one.evidence:
        lines += [style(line, "dim") for line in _wrapped("  | ", text)]
    if one.severity is Severity.NOTE:
        return lines
    if one.releases != "all":
        lines += _wrapped("  in:   ", one.releases)
    if one.todo:
        lines += _wrapped("  next: ", one.todo)
    if one.recipe in report.known and one.recipe not in report.recipes:
        named = " ".join(filter(None, [one.recipe, one.options]))
        said = f"patchkit apply {named} (--with {named} asks as if it were)"
        if one.recipe.endswith("-guard"):
            said = f"patchkit apply {named}, and SGLang refuses it instead"
        lines += _wrapped("  or:   ", said)
    return lines


def _wrapped(label: str, text: str) -> list[str]:
    first, *more = wrap(text, WIDTH - len(label)) or [""]
    return [label + first, *(" " * len(label) + line for line in more)]


def _summary(report: Report, style: Style) -> str:
    errors = report.count(Severity.ERROR)
    warnings, notes = report.count(Severity.WARNING), report.count(Severity.NOTE)
    word, colour = ("DOES NOT FIT", "red") if errors else ("FITS", "green")
    if not errors and any(row.skipped for row in report.rows):
        word = "FITS, as far as was checked"
    counts = ", ".join(
        f"{count} {name}{'s' if count != 1 else ''}"
        for count, name in ((errors, "error"), (warnings, "warning"), (notes, "note"))
    )
    made = sum(not row.skipped for row in report.rows)
    said = (
        f"{word}: {counts}; {made} of {len(CHECKS)} checks in {report.seconds:.1f} s,"
        f" at most {report.peak_mb} MB a process"
    )
    first, *more = wrap(said, WIDTH)
    return "\n".join(
        [first.replace(word, style(word, "bold", colour), 1), *("  " + m for m in more)]
    )
