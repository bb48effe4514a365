"""Findings of what is known, one module a check. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import CHECKS, Finding, Row
from patchkit.draft.rules import (
    algorithm,
    architecture,
    capture,
    fc,
    fields,
    layers,
    numerics,
    vocabulary,
    weights,
)

Rule = Callable[[Evidence], Iterable[Finding | Row]]

_RULES: Mapping[str, Rule] = {
    "architecture": architecture.judge,
    "weights": weights.judge,
    "fc": fc.judge,
    "capture": capture.judge,
    "layers": layers.judge,
    "vocabulary": vocabulary.judge,
    "fields": fields.judge,
    "numerics": numerics.judge,
    "algorithm": algorithm.judge,
}


def judge(evidence: Evidence) -> tuple[list[Finding], list[Row]]:
    """All findings, and a row for each check, in the order of the report."""
    findings: list[Finding] = []
    rows: list[Row] = []
    for check in CHECKS:
        found = list(_RULES[check](evidence))
        findings += [one for one in found if isinstance(one, Finding)]
        said = [one for one in found if isinstance(one, Row)]
        assert len(said) == 1, check
        rows += said
    return findings, rows
