"""A report of check-draft for programs: JSON and JUnit XML. Pure."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape, quoteattr

from patchkit.draft.finding import CHECKS, Finding, Severity
from patchkit.draft.run import Report
from patchkit.verify.formats import clean, junit


def report_json(report: Report) -> dict[str, Any]:
    return {
        "schema": 1,
        "sglang": report.version,
        "package": report.package,
        "draft": str(report.checkpoint.folder),
        "format": report.kind.name,
        "tensors": len(report.checkpoint.tensors),
        "target": report.target_class,
        "algorithm": report.algorithm,
        "with": list(report.recipes),
        "assumed_class": report.assumed,
        "fits": report.exit_code == 0,
        "exit_code": report.exit_code,
        "counts": {one.value.lower(): report.count(one) for one in Severity},
        "checks": [
            {"name": row.check, "about": CHECKS[row.check], "said": row.said,
             "skipped": row.skipped}
            for row in report.rows
        ],
        "findings": [_finding(one, report) for one in report.findings],
        "renaming": dict(report.renaming),
        "seconds": report.seconds,
        "peak_mb": report.peak_mb,
    }  # fmt: skip


def _finding(one: Finding, report: Report) -> dict[str, Any]:
    return {
        "check": one.check,
        "code": one.code,
        "severity": one.severity.value,
        "text": one.text,
        "evidence": list(one.evidence),
        "releases": one.releases,
        "todo": one.todo,
        "recipe": one.recipe if one.recipe in report.known else None,
        "recipe_options": one.options or None,
        "outcome": one.outcome or None,
    }


def report_junit(report: Report) -> str:
    """One test case a check: a failure if it has an error; skipped if it was not
    made. Warnings and notes are its output."""
    cases, of = [], quoteattr(f"sglang {report.version}")
    for row in report.rows:
        mine = [one for one in report.findings if one.check == row.check]
        errors = [one for one in mine if one.severity is Severity.ERROR]
        body = "\n".join(_lines(one) for one in mine) or row.said
        inner = f"<system-out>{escape(clean(body))}</system-out>"
        if errors:
            message = quoteattr(clean(errors[0].text))
            inner = f"<failure message={message}>{escape(clean(body))}</failure>"
        elif row.skipped:
            inner = f"<skipped message={quoteattr(clean(row.skipped))}/>"
        head = f'<testcase classname={of} name="{row.check}">'
        cases.append(f"{head}{inner}</testcase>")
    return junit("patchkit check-draft", cases, report.seconds)


def _lines(one: Finding) -> str:
    lines = [f"{one.severity.value} {one.code}: {one.text}", *one.evidence]
    if one.todo:
        lines.append(f"next: {one.todo}")
    return "\n".join(lines)
