"""A report for programs: JSON, JUnit XML, GitHub annotations. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from patchkit.verify.defects import DEFECTS
from patchkit.verify.run import Report
from patchkit.verify.text import counted
from patchkit.verify.verdict import Check, Verdict


def report_json(report: Report, *, strict: bool) -> dict[str, Any]:
    report = report.counting(strict=strict)
    return {
        "schema": 1,
        "sglang": report.version,
        "package": report.package,
        "python": report.python,
        "device": report.device,
        "baseline": report.baseline,
        "applied": list(report.applied),
        "exit_code": report.exit_code(strict=strict),
        "counts": counted(report),
        "seconds": report.seconds,
        "peak_mb": report.peak_mb,
        "checks": [
            {
                "name": one.name,
                "verdict": one.verdict.value,
                "reason": one.reason,
                "details": list(one.details),
                "known_defects": [
                    {
                        "name": name,
                        "text": DEFECTS[name].text,
                        "recipe": report.remedies.get(DEFECTS[name].check),
                    }
                    for name in one.defects
                ],
                "compared": one.compared,
                "seconds": one.seconds,
            }
            for one in report.checks
        ],
        "environment": report.info,
    }


def report_junit(report: Report, *, strict: bool) -> str:
    """One test case a check. NOT APPLICABLE is skipped, CANNOT RUN an error; a known
    defect is a failure only if ``strict``."""
    cases = [_case(one, report, strict) for one in report.checks]
    return junit("patchkit verify", cases, report.seconds)


def junit(name: str, cases: Sequence[str], seconds: float) -> str:
    """The file around test cases, each an element as text."""
    failed = sum("<failure" in one for one in cases)
    errors = sum("<error" in one for one in cases)
    skipped = sum("<skipped" in one for one in cases)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<testsuites><testsuite name="{name}" tests="{len(cases)}"'
        f' failures="{failed}" errors="{errors}" skipped="{skipped}"'
        f' time="{seconds:.3f}">\n' + "\n".join(cases) + "\n</testsuite>"
        "</testsuites>\n"
    )


def _case(check: Check, report: Report, strict: bool) -> str:
    name = quoteattr(f"sglang {report.version}")
    head = f'<testcase classname={name} name="{check.name}" time="{check.seconds:.3f}">'
    body = _text("\n".join([check.reason, *check.details]))
    reason = quoteattr(clean(check.reason))
    inner = f"<system-out>{body}</system-out>"
    if check.verdict is Verdict.FAIL:
        inner = f"<failure message={reason}>{body}</failure>"
    elif check.verdict is Verdict.CANNOT_RUN:
        inner = f"<error message={reason}>{body}</error>"
    elif check.verdict is Verdict.NOT_APPLICABLE:
        inner = f"<skipped message={reason}/>"
    elif check.defects:
        said = "; ".join(DEFECTS[one].text for one in check.defects)
        inner = f"<system-out>known defect: {_text(said)}</system-out>"
        if strict:
            inner = f"<failure message={quoteattr(said)}/>"
    return f"{head}{inner}</testcase>"


def _text(text: str) -> str:
    return escape(clean(text))


def clean(text: str) -> str:
    """Without what XML 1.0 can't hold: a log may carry colours and worse."""
    return "".join(
        one
        for one in text
        if one in "\t\n\r"
        or " " <= one <= "\ud7ff"
        or "\ue000" <= one <= "\ufffd"
        or one >= "\U00010000"
    )


def github_lines(report: Report, *, strict: bool) -> list[str]:
    """Workflow commands of GitHub Actions: an error or a warning for each check that
    asks for attention."""
    lines = []
    for one in report.checks:
        if one.verdict in (Verdict.FAIL, Verdict.CANNOT_RUN):
            lines.append(_command("error", one, f"{one.verdict.value}: {one.reason}"))
        for name in one.defects:
            level = "error" if strict else "warning"
            text = f"known defect of stock SGLang: {DEFECTS[name].text}"
            lines.append(_command(level, one, text))
    return lines


def _command(level: str, check: Check, text: str) -> str:
    for one, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(one, code)
    return f"::{level} title=patchkit verify {check.name}::{text}"
