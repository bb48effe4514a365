"""import, weights, capture, draft, decode, golden: one run of the patched tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from patchkit.verify.defects import is_known
from patchkit.verify.evidence import Evidence, unusable
from patchkit.verify.jobs import Result, Values
from patchkit.verify.verdict import Check, Tally, not_applicable

#: Of the largest magnitude: how far two ways of computing the same may lie apart.
TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}
#: The golden statistics also hold on other CPUs, whose sums round differently.
GOLDEN = {"float32": 1e-4, "bfloat16": 1e-2}
#: On CUDA they are off by 3e-7 and 7e-3 (one H200, 0.5.9 and 0.5.23).
GOLDEN_CUDA = {"float32": 1e-4, "bfloat16": 3e-2}

Call = Mapping[str, Any]


def judge_import(evidence: Evidence) -> Check:
    problem = unusable("import", evidence, "patched")
    if problem:
        return problem
    tally = Tally()
    for result in evidence.ranks("patched"):
        files = result.facts["files"]
        for name in sorted(files):
            tally.expect(True, name)
        for one in result.facts["standins_called"]:
            tally.expect(
                False,
                f"{one['phase']}: stand-in {one['name']} was called by"
                f" {one['called_by']}",
            )
    names = {one["name"].partition(".")[0] for one in evidence.info.get("standins", ())}
    standins = f"; stand-ins: {', '.join(sorted(names))}" if names else ""
    absent = {
        f"; not run: {name.rpartition('.')[2]}, which can't be imported here ({why})"
        for result in evidence.ranks("patched")
        for name, why in result.facts.get("not_here", {}).items()
    }
    said = f"{tally.compared} modules{standins}{''.join(sorted(absent))}"
    return tally.check("import", said)


def judge_weights(evidence: Evidence) -> Check:
    problem = unusable("weights", evidence, "patched")
    if problem:
        return problem
    tally = Tally()
    (result,) = evidence.ranks("patched")
    for which, found in result.facts["weights"].items():
        unwritten, dropped = found["unwritten"], found["dropped"]
        tally.expect(not unwritten, f"{which}: no tensor reached {_listed(unwritten)}")
        tally.expect(
            not dropped, f"{which}: {_listed(dropped)} of the checkpoint was dropped"
        )
    return tally.check("weights", "every parameter written, none dropped")


def judge_capture(evidence: Evidence) -> Check:
    problem = unusable("capture", evidence, "patched", "baseline")
    if problem:
        return problem
    patched, baseline = evidence.one("patched"), evidence.one("baseline")
    assert patched is not None and baseline is not None
    if "capture-removed" in evidence.fixed:
        return not_applicable("capture", "a recipe took it out: see capture-removed")
    if not patched.facts["captures"] and not baseline.facts["captures"]:
        return not_applicable("capture", "this release captures no aux states")
    tally = Tally()
    captures(tally, evidence, patched, baseline)
    return tally.check(
        "capture", f"{tally.compared} calls, the right layers, bit-equal"
    )


def captures(
    tally: Tally, evidence: Evidence, patched: Result, baseline: Result
) -> None:
    """Every call's states are the streams of the right layers, in order."""
    if not tally.expect(
        patched.facts["captures"],
        patched.facts["refusal"] or "the baseline captures aux states, this tree not",
    ):
        return
    calls, stock = patched.calls(), baseline.calls()
    layers, ids = evidence.shape["layers"], evidence.shape["layer_ids"]
    explicit = [[one + 1 for one in ids]]
    default = [[2, layers // 2, layers - 3]]
    shifted = [list(evidence.shape["shifted"])]
    # 0.5.13 on: ids whose first is not 1 are taken as they are
    shifted.append([one + 1 for one in shifted[0]])
    if "captured" in stock.get("extend-shifted", {}):
        shifted = [one for one in shifted if one == stock["extend-shifted"]["captured"]]
    wanted = {
        "extend-default": default,
        "decode-default": default,
        "extend-shifted": shifted,
        **dict.fromkeys(("extend", "decode", "prefill"), explicit),
        **dict.fromkeys(("extend-last", "decode-last"), explicit),
        **dict.fromkeys(("extend-logprobs", "extend-logprobs-last"), explicit),
    }
    for name, allowed in wanted.items():
        call, theirs = calls.get(name), stock.get(name, {})
        if call is None:
            tally.expect(False, f"{name}: not reached")
        elif call["error"]:
            defect = "logprobs-last"
            if (
                name == "extend-logprobs-last"
                and _unfilled(call["error"])
                and (
                    _unfilled(theirs.get("error", "")) or not baseline.facts["captures"]
                )
                and is_known(defect, evidence.version)
            ):
                tally.known(defect)
            else:
                tally.expect(False, f"{name}: {call['error']}")
        else:
            tally.expect(*_right_layers(name, call, allowed))


def _unfilled(error: str) -> bool:
    # torch words it by version; what it was given is None
    return "aux_pruned_states" in error or "cat()" in error


def _right_layers(
    name: str, call: Call, allowed: Sequence[Sequence[int]]
) -> tuple[bool, str]:
    found = call.get("captured")
    if found is None:
        return False, f"{name}: no hidden states came back"
    if call["rows"][0] != call["rows"][1]:
        return False, f"{name}: {call['rows'][0]} rows, not {call['rows'][1]}"
    if found in [list(one) for one in allowed]:
        return True, ""
    where = " or ".join(str(list(one)) for one in allowed) or "those of the baseline"
    if len(found) not in {len(one) for one in allowed} or not call["near"]:
        return False, f"{name}: {call['width']} columns wide, for layers {where}"
    told = []
    for number, (layer, near) in enumerate(zip(found, call["near"])):
        if layer is not None:
            told.append(f"layer {layer}")
        elif near:
            told.append(f"no layer's (closest: {near[0]:g}, off by {near[1]:.3g})")
        else:
            told.append(f"state {number} has no layer's shape")
    return False, f"{name}: captured {', '.join(told)}; wanted layers {where}"


NO_DRAFT = "a recipe took the draft's side out, so that no draft was run"


def judge_draft(evidence: Evidence) -> Check:
    if evidence.no_draft:
        return not_applicable("draft", NO_DRAFT)
    problem = unusable("draft", evidence, "patched")
    if problem:
        return problem
    tally = Tally()
    (result,) = evidence.ranks("patched")
    drafts(tally, evidence, result)
    return tally.check("draft", "fc on 3 states, skipped on 1")


def drafts(tally: Tally, evidence: Evidence, result: Result) -> None:
    """``fc`` runs exactly when widths differ, and its output is what goes on."""
    if evidence.no_draft:
        return
    calls = result.calls()
    for name, times in (("draft", 1), ("draft-decode", 0)):
        call = calls.get(name)
        if call is None or call["error"]:
            why = "not reached" if call is None else call["error"]
            tally.expect(False, f"{name}: {why}")
            continue
        tally.expect(
            call["fc_calls"] == times,
            f"{name}: fc ran {call['fc_calls']} times, not {times}",
        )
        if call["fc_calls"]:
            tally.expect(
                call["fc_received_equal"],
                f"{name}: fc received other values than the draft was given",
            )
        tally.expect(
            call["entering_equal"],
            f"{name}: what enters the draft's layer is not "
            + ("what fc returns" if times else "the state it was given"),
        )
        tally.expect(
            call["handed_on_equal"],
            f"{name}: what it hands to its next step is not its last stream",
        )
        logits = result.tensors.get(f"{name}.logits")
        tally.expect(
            logits is not None and logits.finite(), f"{name}: logits are not finite"
        )
    vocabulary = evidence.shape["draft_vocabulary"]
    tally.expect(
        result.facts["hot_tokens"] == [2 * one for one in range(vocabulary)],
        "the hot-token map is not what the checkpoint's d2t says",
    )


def judge_decode(evidence: Evidence) -> Check:
    problem = unusable("decode", evidence, "patched")
    if problem:
        return problem
    tally = Tally()
    (result,) = evidence.ranks("patched")
    decodes(tally, result, "float32")
    return tally.check("decode", "decode equals prefill")


def decodes(tally: Tally, result: Result, dtype: str) -> None:
    for name in ("decode", "prefill"):
        error = result.calls().get(name, {"error": "not reached"})["error"]
        if error:
            tally.expect(False, f"{name}: {error}")
            return
    pairs = [("decode.logits", "prefill.logits")]
    if result.facts["captures"]:
        pairs.append(("decode.states", "prefill.last"))
    for one, other in pairs:
        close(tally, result.tensors, result.tensors, one, other, dtype)


def judge_golden(evidence: Evidence) -> Check:
    problem = unusable("golden", evidence, "patched")
    if problem:
        return problem
    tally = Tally()
    (result,) = evidence.ranks("patched")
    goldens(tally, evidence, result, "float32")
    return tally.check("golden", "as recorded for all releases")


def goldens(tally: Tally, evidence: Evidence, result: Result, dtype: str) -> None:
    """Sums of magnitudes are those recorded for one of the eras."""
    on_cuda = evidence.info.get("device") == "cuda"
    allowed = (GOLDEN_CUDA if on_cuda else GOLDEN)[dtype]
    for name, known in sorted(evidence.shape["golden"][dtype].items()):
        if evidence.no_draft and name.startswith("draft"):
            continue
        found = result.tensors.get(name)
        if found is None:
            tally.expect(False, f"{name}: not reached")
            continue
        total = found.total()
        right = any(abs(total - one) <= allowed * abs(one) for one in known)
        expected = " or ".join(f"{one:g}" for one in known)
        tally.expect(right, f"{name}: sum of magnitudes {total:.6f}, not {expected}")


def close(
    tally: Tally,
    ours: Mapping[str, Values],
    theirs: Mapping[str, Values],
    one: str,
    other: str,
    dtype: str,
    *,
    said: str = "",
) -> bool:
    """``ours[one]`` and ``theirs[other]`` agree within the tolerance of ``dtype``."""
    mine, yours = ours.get(one), theirs.get(other)
    if mine is None or yours is None:
        lacking = one if mine is None else other
        return tally.expect(False, f"{lacking}: there is none")
    distance = mine.distance(yours)
    scale = max(mine.magnitude(), yours.magnitude(), 1e-30)
    names = said or (one if one == other else f"{one} and {other}")
    return tally.expect(
        mine.finite() and distance <= TOLERANCE[dtype] * scale,
        f"{names}: off by {distance:.3g} (largest magnitude {scale:.3g})",
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
