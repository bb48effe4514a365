"""tensor-parallel, fusion, capture-order: what only a server's set-up brings out."""

from __future__ import annotations

from patchkit.verify.defects import is_known
from patchkit.verify.evidence import Evidence, unusable
from patchkit.verify.jobs import Result
from patchkit.verify.judge.model import close
from patchkit.verify.verdict import Check, Tally, cannot_run, not_applicable

LOGITS = ("extend.logits", "decode.logits")
STATES = ("extend.states", "decode.states")
DRAFT = ("draft.logits", "draft-decode.logits")


def _beside_logits(evidence: Evidence) -> tuple[str, ...]:
    """The outputs that depend on what is captured."""
    return STATES if evidence.no_draft else (*STATES, *DRAFT)


def judge_tensor_parallel(evidence: Evidence) -> Check:
    name = "tensor-parallel"
    problem = unusable(name, evidence, "patched", "patched-tp2")
    if problem:
        return problem
    tally = Tally()
    for result in evidence.ranks("patched-tp2"):
        _calls_went_well(tally, result)
        for tensor in (*LOGITS, *_beside_logits(evidence)):
            _equals_one_rank(tally, evidence, result, tensor)
    return tally.check(name, "two ranks equal one")


def judge_fusion(evidence: Evidence) -> Check:
    name = "fusion"
    problem = unusable(name, evidence, "patched", "patched-fusion", "baseline-fusion")
    if problem:
        return problem
    ours, theirs = evidence.ranks("patched-fusion"), evidence.ranks("baseline-fusion")
    if not any(one.facts["fusion_available"] for one in (*ours, *theirs)):
        return not_applicable(name, "this release has no fused all-reduce here")
    fused = min(one.facts["fused_calls"] for one in ours)
    if not fused:
        tally = Tally()
        for one in ours:
            _calls_went_well(tally, one)
        if tally.failures:
            return tally.check(name, "")
        if any(one.facts["fused_calls"] for one in theirs):
            tally.expect(False, "the baseline fuses all-reduces, this tree does not")
            return tally.check(name, "")
        return cannot_run(name, "the emulation did not engage: no fused call")
    tally = Tally()
    defect = "capture-before-all-reduce"
    excused = (
        name not in evidence.fixed
        and is_known(defect, evidence.version)
        and _captured_parts(evidence, theirs)
        and _captured_parts(evidence, ours)
    )
    for result in ours:
        _calls_went_well(tally, result)
        for tensor in LOGITS:
            _equals_one_rank(tally, evidence, result, tensor)
        for tensor in _beside_logits(evidence):
            if excused:
                tally.known(defect)
            elif result.facts["captures"]:
                _equals_one_rank(tally, evidence, result, tensor)
    captures = any(one.facts["captures"] for one in ours)
    what = "logits, states and draft" if captures and not excused else "logits"
    return tally.check(name, f"{fused} fused calls; {what} equal one rank's")


def _captured_parts(evidence: Evidence, results: object) -> bool:
    """The symptom: logits are right on every rank, the captured states are not."""
    assert isinstance(results, (list, tuple))
    for result in results:
        for tensors, right in ((LOGITS, True), (STATES, False)):
            for tensor in tensors:
                tally = Tally()
                _equals_one_rank(tally, evidence, result, tensor)
                if (not tally.failures) is not right or tensor not in result.tensors:
                    return False
    return bool(results)


def _equals_one_rank(
    tally: Tally, evidence: Evidence, result: Result, tensor: str
) -> None:
    alone = evidence.one("patched")
    assert alone is not None
    said = f"rank {result.rank}: {tensor}"
    close(tally, result.tensors, alone.tensors, tensor, tensor, "float32", said=said)


def _calls_went_well(tally: Tally, result: Result) -> None:
    for call in result.facts["calls"]:
        if call["error"]:
            tally.expect(False, f"rank {result.rank}: {call['call']}: {call['error']}")


def judge_capture_order(evidence: Evidence) -> Check:
    name = "capture-order"
    order = evidence.shape["setters"]
    if not order:
        return not_applicable(name, "no runner of this release sets the layers")
    patched = evidence.one("patched")
    if patched is not None and patched.ran and not patched.facts["captures"]:
        return not_applicable(name, "this release captures no aux states")
    problem = unusable(name, evidence, "patched-order", "baseline-order")
    if problem:
        return problem
    ours, theirs = evidence.one("patched-order"), evidence.one("baseline-order")
    assert ours is not None and theirs is not None
    tally = Tally()
    for call in ours.facts["calls"]:
        tally.expect(not call["error"], f"{call['call']}: {call['error']}")
    graph, prefill = _layers(ours)
    defect = "graph-layers"
    if (
        graph != prefill
        and None not in (graph, prefill)
        and name not in evidence.fixed
        and (_layers(ours) == _layers(theirs) or not theirs.facts["captures"])
        and order == ["default", "explicit"]
        and is_known(defect, evidence.version)
    ):
        tally.known(defect)
    else:
        tally.expect(
            graph is not None and graph == prefill,
            f"graphs capture layers {graph}, prefill captures {prefill}",
        )
    return tally.check(name, f"graphs {_plain(graph)}, prefill {_plain(prefill)}")


def _plain(layers: list[int] | None) -> str:
    return ",".join(map(str, layers or ()))


def _layers(result: Result) -> tuple[list[int] | None, list[int] | None]:
    calls = result.calls()
    graph = calls.get("graph", {}).get("captured")
    return graph, calls.get("prefill", {}).get("captured")
