"""A report for people: a table that fits 80 columns. Pure."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from patchkit.report.style import Style, wrap
from patchkit.verify.defects import DEFECTS
from patchkit.verify.run import Report
from patchkit.verify.verdict import Check, Verdict

WIDTH = 79
_COLOURS = {
    Verdict.PASS: "green",
    Verdict.FAIL: "red",
    Verdict.NOT_APPLICABLE: "dim",
    Verdict.CANNOT_RUN: "yellow",
}
_NAME, _VERDICT, _TIME = 16, 15, 7
#: Of the probe's bridges, the one that says what is wrong with the installation.
BROKEN = "what is installed fails"
#: Folders of a run that are gone when it is read of.
_SCRATCH = re.compile(r"/[^\s\"']*/patchkit-(?:verify|overlay)-\w+/(?:import/)?")
#: Lines of a stack or a log that are shown; ``--json`` has them all.
_SHOWN = 14


#: What the seconds of a row are.
_SECONDS = (
    "seconds: of the longest run that the check needs, or of its own; checks share"
    " runs, which go side by side, so the column has no sum. import: with the set-up."
)


def report_text(report: Report, style: Style, *, strict: bool) -> str:
    report = report.counting(strict=strict)
    lines = _head(report, style)
    told: dict[tuple[str, ...], str] = {}
    for check in report.checks:
        lines += _row(check, style, told)
    if any(one.seconds for one in report.checks):
        lines += ["", *(style(line, "dim") for line in wrap(_SECONDS, WIDTH))]
    defects = dict.fromkeys(name for one in report.checks for name in one.defects)
    if defects:
        lines += ["", style("Known defects of stock SGLang, met here:", "bold")]
    for name in defects:
        defect = DEFECTS[name]
        remedy = report.remedies.get(defect.check)
        text = defect.text + (f" (patchkit apply {remedy})" if remedy else "")
        first, *more = wrap(f"{name}: {text}", WIDTH - 4)
        lines += ["  " + first, *("    " + line for line in more)]
    lines += ["", _summary(report, style, strict=strict)]
    return "\n".join(lines)


def _head(report: Report, style: Style) -> list[str]:
    applied = ", ".join(report.applied) or "nothing"
    lines = [
        style(f"SGLang {report.version}", "bold") + f" at {report.package}",
        f"applied: {applied}; compared with: {report.baseline}",
    ]
    if report.info:
        info = report.info
        lines.append(
            f"torch {info['torch']}, transformers {info['transformers']}, python"
            f" {info['python']} ({report.why_python})"
        )
        lines += wrap(_device(info), WIDTH)
        for shim in info.get("shims", ()):
            if BROKEN in shim:
                lines += wrap(shim, WIDTH)
    elif report.python:
        lines.append(f"{report.python} ({report.why_python})")
    title = f"{'check':<{_NAME}}{'verdict':<{_VERDICT}}{'seconds':<{_TIME}}"
    return [*lines, "", style(title.rstrip(), "dim")]


def _device(info: Mapping[str, Any]) -> str:
    """Where it ran; "" for the CPU."""
    if info.get("device", "cpu") == "cpu":
        return ""
    count = info["devices"]
    kernels = (
        "SGLang's own compiled kernels"
        if info["kernels"]
        else "SGLang's path without compiled kernels, CUDA hidden from it"
    )
    fresh = ", each run in a process that imports anew" if info.get("fresh") else ""
    name = info["device_name"] + (f" and {count - 1} more" if count > 1 else "")
    return f"on cuda, {name}: {kernels}{fresh}"


def _row(check: Check, style: Style, told: dict[tuple[str, ...], str]) -> list[str]:
    """``told``: the stacks and logs shown by now, and under which check."""
    head = style(f"{check.name:<{_NAME}}", "bold")
    verdict = style(f"{check.verdict.value:<{_VERDICT}}", _COLOURS[check.verdict])
    seconds = f"{check.seconds:5.1f} s" if check.seconds else " " * _TIME
    margin = _NAME + _VERDICT + _TIME + 1
    first, *more = wrap(check.reason, WIDTH - margin) or [""]
    lines = [f"{head}{verdict}{seconds} {first}".rstrip()]
    lines += [" " * margin + line for line in more]
    for name in check.defects:
        lines.append(" " * margin + style(f"known defect: {name}", "yellow"))
    if check.verdict is Verdict.FAIL and len(check.details) > 1 and check.compared:
        for text in check.details[1:6]:
            first, *more = wrap(text, WIDTH - _NAME - 2)
            lines.append(" " * _NAME + f"- {first}")
            lines += [" " * (_NAME + 2) + line for line in more]
        if len(check.details) > 6:
            lines.append(" " * _NAME + f"- and {len(check.details) - 6} more")
    elif check.details in told:
        lines.append(style(f"    | as under {told[check.details]}", "dim"))
    elif check.details and not check.compared:
        told[check.details] = check.name
        lines += [style(line, "dim") for line in _log(check.details[-_SHOWN:])]
    return lines


def _log(details: Sequence[str]) -> list[str]:
    """Lines of a stack or a log, wrapped, none of it left out but what is endless."""
    lines = []
    for text in details:
        text = _SCRATCH.sub("", text)
        indent = " " * min(20, len(text) - len(text.lstrip()))
        parts = textwrap.wrap(
            text,
            WIDTH - 6,
            subsequent_indent=indent + "  ",
            break_on_hyphens=False,
            max_lines=6,
        )
        lines += ["    | " + part for part in parts or [""]]
    return lines


def counted(report: Report) -> dict[str, int]:
    """How many checks have each verdict, and how many comparisons were made."""
    found = Counter(one.verdict.value for one in report.checks)
    return {one.value: found[one.value] for one in Verdict} | {
        "compared": sum(one.compared for one in report.checks),
        "known defects": len({name for one in report.checks for name in one.defects}),
    }


def _summary(report: Report, style: Style, *, strict: bool) -> str:
    numbers = counted(report)
    code = report.exit_code(strict=strict)
    said = [
        f"{numbers[one.value]} {one.value}" for one in Verdict if numbers[one.value]
    ]
    defects = numbers["known defects"]
    if defects:
        tail = "counted, by --strict" if strict else "not counted (--strict counts)"
        said.append(f"{defects} known defect{'s' if defects > 1 else ''} {tail}")
    word = {0: "PASS", 1: "FAIL", 4: "CANNOT RUN", 5: "TIMED OUT"}[code]
    colour = {0: "green", 1: "red"}.get(code, "yellow")
    head = style(word, "bold", colour)
    memory = f", at most {report.peak_mb} MB a process" if report.peak_mb else ""
    body = (
        f"{', '.join(said)}; {numbers['compared']} comparisons in"
        f" {report.seconds:.1f} s{memory}"
    )
    first, *more = wrap(f"{word}: {body}", WIDTH)
    return "\n".join([first.replace(word, head, 1), *("  " + line for line in more)])
