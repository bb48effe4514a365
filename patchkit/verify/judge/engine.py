"""engine-…: SGLang's own engine with the canary pair, against the closed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from patchkit.canary.chart import State, chart_of_candidates
from patchkit.canary.code import BEFORE
from patchkit.verify import pair
from patchkit.verify.answers import histogram, states, verifications
from patchkit.verify.defects import is_known
from patchkit.verify.evidence import Evidence, unusable
from patchkit.verify.jobs import Result
from patchkit.verify.judge.accepted import (
    diagnosed,
    drafts_right,
    fused,
    length,
    nothing_refused,
    only_drafts_wrong,
    ranks,
    target_right,
)
from patchkit.verify.judge.ended import ended, ends_by_its_fault, words_of
from patchkit.verify.judge.story import tells_the_story
from patchkit.verify.verdict import (
    Check,
    Tally,
    Verdict,
    cannot_run,
    not_applicable,
)

ACCEPT = "engine-accept"

Call = Mapping[str, Any]


def judge_accept(evidence: Evidence) -> Check:
    return _like_the_form(ACCEPT, evidence, "engine")


def judge_ids(evidence: Evidence) -> Check:
    return _like_the_form("engine-ids", evidence, "engine-ids")


def judge_tp(evidence: Evidence) -> Check:
    check = _like_the_form("engine-tp", evidence, "engine-tp")
    alone = evidence.one("patched-engine")
    if check.verdict is Verdict.FAIL and alone is not None and alone.ran:
        one = _like_the_form(ACCEPT, evidence, "engine")
        if one.details[:1] == check.details[:1]:
            reason = f"as with one rank, see {ACCEPT}: {check.reason}"
            return replace(check, reason=reason)
    return check


def judge_fusion(evidence: Evidence) -> Check:
    name, variant = "engine-fusion", "engine-fusion"
    problem = _unusable(name, evidence, f"patched-{variant}", f"baseline-{variant}")
    if problem:
        return problem
    ours, theirs = _both(evidence, variant)
    if not ours.facts["fusion_available"] and not theirs.facts["fusion_available"]:
        return not_applicable(name, "this release has no fused all-reduce here")
    if not fused(ours) and not any(one["error"] for one in ours.facts["calls"]):
        return cannot_run(name, "the emulation did not engage: no fused call")
    defect = "capture-before-all-reduce"
    if (
        "fusion" not in evidence.fixed
        and _parts_of_sums(ours, variant)
        and _right_alone(evidence)
        and _as_known(defect, evidence, variant)
    ):
        return _excused(name, evidence, variant, defect)
    return _like_the_form(name, evidence, variant)


def judge_steps(evidence: Evidence) -> Check:
    name, variant = "engine-steps", "engine-steps"
    problem = _unusable(name, evidence, f"patched-{variant}", f"baseline-{variant}")
    if problem:
        return problem
    defect = "draft-positions"
    ours, _ = _both(evidence, variant)
    if (
        name not in evidence.fixed
        and _only_the_first(ours)
        and _own_for_before(ours)
        and _right_states(ours, variant)
        and _right_alone(evidence)
        and _as_known(defect, evidence, variant)
    ):
        return _excused(name, evidence, variant, defect)
    return _like_the_form(name, evidence, variant)


def judge_gate_off(evidence: Evidence) -> Check:
    name = "engine-gate-off"
    if evidence.same:
        return not_applicable(name, "nothing differs from the baseline")
    problem = _unusable(name, evidence, "patched-engine", "baseline-engine")
    if problem:
        return problem
    patched = evidence.one("patched-engine")
    baseline = evidence.one("baseline-engine")
    assert patched is not None and baseline is not None
    tally = Tally()
    _equal(tally, patched, baseline)
    for call, entry in patched.calls().items():
        tally.expect(not entry["taps"], f"{call}: a tap writes with the gate off")
    return tally.check(name, "tokens, drafts and histograms as the baseline's")


def judge_gate_on(evidence: Evidence) -> Check:
    name = "engine-gate-on"
    if not evidence.promises:
        return not_applicable(name, "no recipe that is applied promises a site")
    problem = _unusable(name, evidence, "gated-engine", "baseline-engine")
    if problem:
        return problem
    gated, baseline = evidence.one("gated-engine"), evidence.one("baseline-engine")
    assert gated is not None and baseline is not None
    tally = Tally()
    _equal(tally, gated, baseline)
    lines = 0
    for call, entry in gated.calls().items():
        failed = [line for line in entry["printed"] if "tap failed" in line]
        tally.expect(not failed, f"{call}: {failed[0][-160:]}" if failed else "")
        for promise in evidence.promises:
            told = [row for row in entry["taps"] if row["site"] == promise.site]
            lines += len(told)
            tells_the_story(tally, call, promise, told)
    return tally.check(name, f"as the baseline; {lines} lines tell the same story")


# -- against the closed form --------------------------------------------------------


def _like_the_form(name: str, evidence: Evidence, variant: str) -> Check:
    problem = _unusable(name, evidence, f"patched-{variant}")
    if problem:
        return problem
    result = evidence.one(f"patched-{variant}")
    assert result is not None
    tally = Tally()
    diagnosed(tally, result, variant)
    target_right(tally, result, variant)
    drafts_right(tally, result, variant)
    plan = pair.plan()
    named = variant == "engine-ids"
    layers = list(plan.id_layers if named else plan.default_layers)
    for call, _, lines in ranks(result):
        held = lines[-1]["layers"] if lines else None
        tally.expect(held == layers, f"{call}: SGLang captures {held}, not {layers}")
    nothing_refused(tally, result)
    return tally.check(
        name,
        f"accept length {pair.STEPS + 1} in {len(_verified(result))} verifications;"
        f" the target's tokens right;{_counted(result, variant)} states before layers"
        f" {','.join(map(str, layers))}",
    )


def _counted(result: Result, variant: str) -> str:
    """How many states were compared, where they were seen."""
    found = states(result, pair.VARIANTS[variant])
    return f" {found.count}" if found is not None else ""


# -- known defects ------------------------------------------------------------------


def _both(evidence: Evidence, variant: str) -> tuple[Result, Result]:
    ours, theirs = (
        evidence.one(f"{whose}-{variant}") for whose in ("patched", "baseline")
    )
    assert ours is not None and theirs is not None
    return ours, theirs


def _as_known(defect: str, evidence: Evidence, variant: str) -> bool:
    """Whether the release is known to have it, and this tree is wrong just as the
    baseline is."""
    ours, theirs = _both(evidence, variant)
    return (
        is_known(defect, evidence.version)
        and only_drafts_wrong(ours, variant)
        and only_drafts_wrong(theirs, variant)
        and all(
            _proposed(call) == _proposed(theirs.calls()[name])
            for name, call in ours.calls().items()
        )
    )


def _excused(name: str, evidence: Evidence, variant: str, defect: str) -> Check:
    ours, _ = _both(evidence, variant)
    tally = Tally()
    target_right(tally, ours, variant)
    tally.known(defect)
    return tally.check(
        name,
        f"the target's tokens are right, accept length {length(ours):.2f} of"
        f" {pair.STEPS + 1}",
    )


def _verified(result: Result) -> list[Any]:
    return [line for call in result.calls().values() for line in verifications(call)]


def _only_the_first(result: Result) -> bool:
    """Whether each verification accepts one draft token."""
    rows = [line["accepted"] for line in _verified(result)]
    return bool(rows) and all(set(row) == {1} for row in rows)


def _right_alone(evidence: Evidence) -> bool:
    """Whether one rank, and a draft that does not mind, are right on this tree: what a
    defect does not explain is not excused by it."""
    return _like_the_form(ACCEPT, evidence, "engine").verdict is Verdict.PASS


def _parts_of_sums(result: Result, variant: str) -> bool:
    """Whether each rank hands on, in each row, what it alone adds: no more is wrong
    with a state that is captured before an all-reduce."""
    found = states(result, pair.VARIANTS[variant])
    return found is not None and found.partial and not found.skipped


def _right_states(result: Result, variant: str) -> bool:
    found = states(result, pair.VARIANTS[variant])
    return found is not None and found.right


def _own_for_before(result: Result) -> bool:
    """Whether second candidates lack the digit from the position before, and no
    other."""
    chart = chart_of_candidates(
        (row[2], target[1])
        for line in _verified(result)
        for row, target in zip(line["candidates"], line["target"])
    )
    wrong = [n for n, one in enumerate(chart.states()) if one is not State.RIGHT]
    return wrong == [BEFORE] and not chart.digits[BEFORE].right


# -- one run against another --------------------------------------------------------


def _equal(tally: Tally, ours: Result, theirs: Result) -> None:
    """Tokens, histograms, and each verification's candidates."""
    mine, yours = ours.calls(), theirs.calls()
    for call in {**mine, **yours}:
        one, other = mine.get(call, {}), yours.get(call, {})
        tally.expect(
            bool(one.get("error", "x")) == bool(other.get("error", "x")),
            f"{call}: {one.get('error') or 'went well'}; the baseline:"
            f" {other.get('error') or 'went well'}",
        )
        pairs = zip(one.get("outputs", ()), other.get("outputs", ()))
        for number, (output, stock) in enumerate(pairs):
            for what, same in (
                ("tokens", output["ids"] == stock["ids"]),
                ("histogram", histogram(output) == histogram(stock)),
            ):
                tally.expect(same, f"{call}, prompt {number}: another {what}")
        tally.expect(
            _proposed(one) == _proposed(other), f"{call}: the draft proposes others"
        )


def _proposed(call: Call) -> list[Any]:
    """By rank: the candidates of each verification of each request, in no order: which
    requests share a verification is the scheduler's."""
    return [
        sorted(row for line in verifications(call, rank) for row in line["candidates"])
        for rank in range(len(call.get("ranks", ())))
    ]


# -- facts --------------------------------------------------------------------------


def _unusable(name: str, evidence: Evidence, *jobs: str) -> Check | None:
    """As ``evidence.unusable``; where no engine runs, the first check says why."""
    if not evidence.shape.get("captures", True):
        return not_applicable(name, "this release captures no aux states")
    first = evidence.one("patched-engine")
    for job in jobs:
        result = evidence.one(job)
        if result is not None and ends_by_its_fault(evidence, result):
            alike = first is not None and words_of(first) == words_of(result)
            if alike and name != ACCEPT and ACCEPT in evidence.chosen:
                reason = f"the engine ends in the model's forward: see {ACCEPT}"
                return Check(name, Verdict.FAIL, reason)
            return ended(name, result)
    if name != ACCEPT and ACCEPT in evidence.chosen and first and not first.ran:
        return cannot_run(name, f"the engine did not run: see {ACCEPT}")
    return unusable(name, evidence, *jobs)
