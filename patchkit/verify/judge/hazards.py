"""unsorted-ids, embedding-ids, width-guard, weight-guard: silent faults of SGLang.

Right is what works or says so. What stock SGLang does as well is listed as known,
unless a recipe is applied that promises better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from patchkit.verify.defects import is_known
from patchkit.verify.evidence import Evidence, unusable
from patchkit.verify.jobs import Result
from patchkit.verify.judge.gates import plain
from patchkit.verify.judge.model import NO_DRAFT
from patchkit.verify.verdict import Check, Tally, not_applicable

Fault = Callable[[Result, Result], str]


def judge_unsorted(evidence: Evidence) -> Check:
    return _judge(evidence, "unsorted-ids", _unsorted, captures=True)


def judge_embedding(evidence: Evidence) -> Check:
    return _judge(evidence, "embedding-ids", _embedding, captures=True)


def judge_width(evidence: Evidence) -> Check:
    return _judge_draft(evidence, "width-guard", _narrow)


def judge_weights_lost(evidence: Evidence) -> Check:
    return _judge_draft(evidence, "weight-guard", _lost_names)


def _judge_draft(evidence: Evidence, name: str, fault: Fault) -> Check:
    if evidence.no_draft:
        return not_applicable(name, NO_DRAFT)
    return _judge(evidence, name, fault, captures=False)


def _judge(evidence: Evidence, name: str, fault: Fault, *, captures: bool) -> Check:
    """``fault(result, stock)``: what is wrong in a run, or nothing."""
    problem = unusable(name, evidence, "patched-hazards", "baseline-hazards")
    if problem:
        return problem
    ours, theirs = evidence.one("patched-hazards"), evidence.one("baseline-hazards")
    assert ours is not None and theirs is not None
    if captures and not ours.facts["captures"]:
        return not_applicable(name, "this tree captures no aux states")
    tally = Tally()
    found = fault(ours, theirs)
    excused = (
        name not in evidence.fixed
        and (fault(theirs, theirs) or (captures and not theirs.facts["captures"]))
        and is_known(name, evidence.version)
    )
    if found and excused:
        tally.known(name)
    else:
        tally.expect(not found, found)
    return tally.check(name, found if found else _RIGHT[name])


_RIGHT: Mapping[str, str] = {
    "unsorted-ids": "ids out of order are delivered as asked, or said",
    "embedding-ids": "id -1 captures the embedding, and disturbs no other",
    "width-guard": "a state too narrow for fc is refused, or said",
    "weight-guard": "names that the draft does not know are refused, or said",
}


def _unsorted(result: Result, stock: Result) -> str:
    call = _call(result, "extend-unsorted")
    found = call.get("captured") or []
    if call["error"] or _more_said(call, _call(stock, "extend-unsorted")):
        return ""
    # [6, 1, 4]: the last first, whatever the release adds to them
    asked = [found.index(one) for one in sorted(found)] if None not in found else []
    return "" if asked == [1, 2, 0] else f"ids 6,1,4 give layers {_shown(found)}"


def _embedding(result: Result, stock: Result) -> str:
    pair = _call(result, "extend-shifted-pair").get("captured")
    wanted = {"embedding": [0, 2, 5], "embedding-shifted": [0, *(pair or [None])]}
    for name, layers in wanted.items():
        call = _call(result, f"extend-{name}")
        if call["error"]:
            return f"id -1: {call['error']}"
        if call.get("captured") != layers:
            return f"id -1: layers {_shown(call.get('captured'))}, not {_shown(layers)}"
    return ""


def _narrow(result: Result, stock: Result) -> str:
    call = _call(result, "draft-narrow")
    if call["error"] or _more_said(call, _call(stock, "draft-narrow")):
        return ""
    return "one layer's state reaches the draft: fc is skipped without a word"


def _lost_names(result: Result, stock: Result) -> str:
    found = result.facts["lost_names"]
    told = "\n".join([found["error"], *found["printed"]])
    if any(name in told for name in found["wrong"]):
        return ""
    return f"{len(found['wrong'])} tensors of the draft are dropped without a word"


def _call(result: Result, name: str) -> Mapping[str, Any]:
    return result.calls().get(name, {"error": "", "printed": []})


def _more_said(call: Mapping[str, Any], stock: Mapping[str, Any]) -> bool:
    return bool({*plain(call["printed"])} - {*plain(stock["printed"])})


def _shown(layers: object) -> str:
    if not isinstance(layers, list):
        return "none"
    return ",".join("?" if one is None else str(one) for one in layers)
