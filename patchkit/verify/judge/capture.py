"""capture-switch and capture-removed: promises of recipes that turn the capture off."""

from __future__ import annotations

from patchkit.verify.evidence import Evidence, unusable
from patchkit.verify.verdict import Check, Tally, not_applicable


def judge_switch(evidence: Evidence) -> Check:
    name = "capture-switch"
    if name not in evidence.fixed:
        return not_applicable(name, "no applied recipe promises it")
    problem = unusable(name, evidence, "patched", "patched-switch")
    if problem:
        return problem
    plain, off = evidence.one("patched"), evidence.one("patched-switch")
    assert plain is not None and off is not None
    tally = Tally()
    refusals = off.facts["refusals"]
    tally.expect(bool(refusals), "the target has no setter of layers to capture")
    for setter, refusal in refusals.items():
        tally.expect(bool(refusal), f"switched off, {setter} still works")
    forced = off.calls()["forced"]
    tally.expect(not forced["error"], f"switched off: {forced['error']}")
    width = forced.get("captured_width")
    tally.expect(not width, f"switched off, with layers set: {width} columns come back")
    logits = off.tensors.get("forced.logits")
    tally.expect(
        logits is not None and logits == plain.tensors.get("extend.logits"),
        "switched off, the logits are others",
    )
    return tally.check(name, "off: refused at the start, and nothing captured")


def judge_removed(evidence: Evidence) -> Check:
    name = "capture-removed"
    if name not in evidence.fixed:
        return not_applicable(name, "no applied recipe promises it")
    problem = unusable(name, evidence, "patched", "baseline")
    if problem:
        return problem
    ours, theirs = evidence.one("patched"), evidence.one("baseline")
    assert ours is not None and theirs is not None
    tally = Tally()
    tally.expect(theirs.facts["captures"], "the baseline captures no aux states")
    tally.expect(not ours.facts["captures"], "aux states are still captured")
    refusal = ours.facts["refusal"]
    tally.expect(
        bool(refusal) and not refusal.startswith("AttributeError"),
        "set_eagle3_layers_to_capture does not refuse with an error of its own",
    )
    for output in ("extend.logits", "decode.logits"):
        logits = ours.tensors.get(output)
        tally.expect(
            logits is not None and logits == theirs.tensors.get(output),
            f"{output} are not the baseline's",
        )
    return tally.check(name, "nothing captured, the setter says so; logits bit-equal")
