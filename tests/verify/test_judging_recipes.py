"""What recipes promise beyond their sites, judged on hand-made results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import verifykit as kit
from verifykit import GOOD, STOCK, verdict

from patchkit.verify.jobs import Result
from patchkit.verify.verdict import Verdict

NAMES = ["blocks.0.mlp.up_proj.weight"]


def hazards(job: str = "patched-hazards", **more: Any) -> Result:
    """Everything right and silent, but for what ``more`` says of a call."""
    calls = {
        "extend-unsorted": kit.capturing("extend-unsorted", [7, 2, 5]),
        "extend-embedding": kit.capturing("extend-embedding", [0, 2, 5]),
        "extend-shifted-pair": kit.capturing("extend-shifted-pair", [3, 5]),
        "extend-embedding-shifted": kit.capturing("x", [0, 3, 5]),
        "draft-narrow": kit.call("draft-narrow", error="RuntimeError: fc wants 192"),
    }
    for name, changes in more.items():
        key = name.replace("_", "-")
        calls[key] = {**calls[key], **changes}
    found = [{**one, "call": name} for name, one in calls.items()]
    lost = {"error": f"ValueError: {NAMES[0]}", "printed": [], "wrong": NAMES}
    facts = {**GOOD.facts, "calls": found, "lost_names": lost}
    return replace(GOOD, job=job, facts=facts)


FAULTS = {
    "unsorted-ids": {"extend_unsorted": {"captured": [2, 5, 7]}},
    "embedding-ids": {"extend_embedding": {"captured": [2, 5]}},
    "width-guard": {"draft_narrow": {"error": ""}},
}


@pytest.mark.parametrize("name", [*FAULTS, "weight-guard"])
def test_what_is_right_or_loud_passes(name: str) -> None:
    check = verdict(name, hazards(), hazards("baseline-hazards"))
    assert (check.verdict, check.defects) == (Verdict.PASS, ())


@pytest.mark.parametrize("name", FAULTS)
def test_a_silent_fault_is_known_unless_a_recipe_promises_better(name: str) -> None:
    fault = hazards(**FAULTS[name])
    known = verdict(name, fault, same=True)
    assert (known.verdict, known.defects) == (Verdict.PASS, (name,))
    promised = verdict(name, fault, same=True, fixed=frozenset({name}))
    assert promised.verdict is Verdict.FAIL
    blamed = verdict(name, fault, hazards("baseline-hazards"))
    assert blamed.verdict is Verdict.FAIL, "the baseline does better"


def test_names_that_vanish_without_a_word() -> None:
    silent = hazards()
    lost = {"error": "", "printed": ["loading"], "wrong": NAMES}
    silent = replace(silent, facts={**silent.facts, "lost_names": lost})
    assert verdict("weight-guard", silent, same=True).defects == ("weight-guard",)
    promised = frozenset({"weight-guard"})
    check = verdict("weight-guard", silent, same=True, fixed=promised)
    assert check.verdict is Verdict.FAIL
    told = {**lost, "printed": [f"WARNING {NAMES[0]} is not used"]}
    loud = replace(silent, facts={**silent.facts, "lost_names": told})
    check = verdict("weight-guard", loud, same=True, fixed=promised)
    assert check.verdict is Verdict.PASS


def test_a_warning_that_the_baseline_does_not_give_is_loud() -> None:
    stock = hazards("baseline-hazards", **FAULTS["unsorted-ids"])
    said = ["[2026-01-01 10:00:00] layer ids are out of order"]
    warned = {"captured": [2, 5, 7], "printed": said}
    ours = hazards(extend_unsorted=warned)
    promised = frozenset({"unsorted-ids"})
    check = verdict("unsorted-ids", ours, stock, fixed=promised)
    assert check.verdict is Verdict.PASS
    later = {**warned, "printed": ["[2026-01-01 10:00:07] layer ids are out of order"]}
    same_words = hazards("baseline-hazards", extend_unsorted=later)
    check = verdict("unsorted-ids", ours, same_words, fixed=promised)
    assert check.verdict is Verdict.FAIL


def switched(**more: Any) -> Result:
    forced = {**kit.call("forced", captured_width=0), **more}
    refusals = {"set_eagle3_layers_to_capture": "RuntimeError: switched off"}
    facts = {**GOOD.facts, "calls": [forced], "refusals": refusals}
    tensors = {"forced.logits": GOOD.tensors["extend.logits"]}
    return replace(GOOD, job="patched-switch", facts=facts, tensors=tensors)


SWITCH = {"fixed": frozenset({"capture-switch"})}


def test_the_switch_is_judged_where_it_is_promised() -> None:
    name = "capture-switch"
    assert verdict(name, GOOD).verdict is Verdict.NOT_APPLICABLE
    assert verdict(name, GOOD, **SWITCH).verdict is Verdict.CANNOT_RUN
    assert verdict(name, GOOD, switched(), **SWITCH).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "off",
    [
        switched(captured_width=192),
        switched(error="ValueError: too many values to unpack"),
        replace(switched(), tensors={"forced.logits": kit.values(9.0)}),
        replace(switched(), facts={**switched().facts, "refusals": {"set_x": ""}}),
        replace(switched(), facts={**switched().facts, "refusals": {}}),
    ],
)
def test_a_switch_that_does_not_switch_fails(off: Result) -> None:
    assert verdict("capture-switch", GOOD, off, **SWITCH).verdict is Verdict.FAIL


REMOVED = {"fixed": frozenset({"capture-removed"}), "changes": ("*.states",)}


def removed(**facts: Any) -> Result:
    run = kit.good_run(captures=False)
    refusal = {"refusal": "RuntimeError: remove-aux-capture took it out"}
    return replace(run, facts={**run.facts, **refusal, **facts})


def test_a_removed_capture() -> None:
    assert verdict("capture-removed", GOOD, STOCK).verdict is Verdict.NOT_APPLICABLE
    ours = removed()
    assert verdict("capture-removed", ours, STOCK, **REMOVED).verdict is Verdict.PASS
    none = replace(ours, tensors={})
    assert verdict("capture-removed", none, STOCK, **REMOVED).verdict is Verdict.FAIL
    check = verdict("capture", ours, STOCK, **REMOVED)
    assert check.verdict is Verdict.NOT_APPLICABLE
    still = verdict("capture-removed", GOOD, STOCK, **REMOVED)
    assert still.verdict is Verdict.FAIL


def test_a_setter_that_refuses_fails_where_no_recipe_promises_it() -> None:
    check = verdict("capture", removed(), STOCK)
    assert check.verdict is Verdict.FAIL and "took it out" in check.reason


def test_outputs_that_a_recipe_changes_are_not_compared() -> None:
    tensors = {**GOOD.tensors, "extend.states": kit.values(9.0, 9.0)}
    ours = replace(GOOD, tensors=tensors)
    assert verdict("gate-off", ours, STOCK).verdict is Verdict.FAIL
    allowed = verdict("gate-off", ours, STOCK, changes=("extend.*",))
    assert allowed.verdict is Verdict.PASS
    other = verdict("gate-off", ours, STOCK, changes=("decode.*",))
    assert other.verdict is Verdict.FAIL


def test_gated_prints_are_those_of_before() -> None:
    said = ["norm of state 0: 17.25"]
    stock = kit.changed(STOCK, "extend", printed=said)
    gated = replace(kit.changed(GOOD, "extend", printed=said), job="gated")
    promise = {"fixed": frozenset({"gate-on"})}
    check = verdict("gate-on", GOOD, stock, gated, **promise)
    assert check.verdict is Verdict.PASS
    quiet = verdict("gate-on", GOOD, stock, replace(GOOD, job="gated"), **promise)
    assert quiet.verdict is Verdict.FAIL
