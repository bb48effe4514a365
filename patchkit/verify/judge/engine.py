"""engine-…: SGLang's own engine with the canary pair, against the closed form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from patchkit.canary import expect
from patchkit.canary.diagnose import diagnose
from patchkit.verify import pair
from patchkit.verify.answers import histogram, measured
from patchkit.verify.defects import is_known
from patchkit.verify.evidence import Evidence, Promise, unusable
from patchkit.verify.jobs import Result
from patchkit.verify.verdict import Check, Tally, cannot_run, not_applicable

ACCEPT = "engine-accept"

Call = Mapping[str, Any]


def judge_accept(evidence: Evidence) -> Check:
    return _like_the_form(ACCEPT, evidence, "engine")


def judge_ids(evidence: Evidence) -> Check:
    return _like_the_form("engine-ids", evidence, "engine-ids")


def judge_tp(evidence: Evidence) -> Check:
    return _like_the_form("engine-tp", evidence, "engine-tp")


def judge_fusion(evidence: Evidence) -> Check:
    name, defect = "engine-fusion", "capture-before-all-reduce"
    job, stock = "patched-engine-fusion", "baseline-engine-fusion"
    problem = _unusable(name, evidence, job, stock)
    if problem:
        return problem
    ours, theirs = evidence.one(job), evidence.one(stock)
    assert ours is not None and theirs is not None
    if not ours.facts["fusion_available"] and not theirs.facts["fusion_available"]:
        return not_applicable(name, "this release has no fused all-reduce here")
    fused = _fused(ours)
    if not fused:
        return cannot_run(name, "the emulation did not engage: no fused call")
    tally = Tally()
    excused = (
        "fusion" not in evidence.fixed
        and is_known(defect, evidence.version)
        and _only_drafts_wrong(ours, "engine-fusion")
        and _only_drafts_wrong(theirs, "engine-fusion")
        and all(
            _proposed(call) == _proposed(theirs.calls()[name])
            for name, call in ours.calls().items()
        )
    )
    if not excused:
        return _like_the_form(name, evidence, "engine-fusion")
    _target_right(tally, ours, "engine-fusion")
    tally.known(defect)
    return tally.check(
        name,
        f"{fused} fused calls; the target's tokens are right, accept length"
        f" {_length(ours):.2f} of {pair.STEPS + 1}",
    )


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
            _story(tally, call, promise, told)
    return tally.check(name, f"as the baseline; {lines} lines tell the same story")


# -- against the closed form --------------------------------------------------------


def _like_the_form(name: str, evidence: Evidence, variant: str) -> Check:
    problem = _unusable(name, evidence, f"patched-{variant}")
    if problem:
        return problem
    result = evidence.one(f"patched-{variant}")
    assert result is not None
    tally = Tally()
    _diagnosed(tally, result, variant)
    _target_right(tally, result, variant)
    _drafts_right(tally, result, variant)
    plan = pair.plan()
    named = variant == "engine-ids"
    layers = list(plan.id_layers if named else plan.default_layers)
    for call, _, lines in _ranks(result):
        held = lines[-1]["layers"] if lines else None
        tally.expect(held == layers, f"{call}: SGLang captures {held}, not {layers}")
    _nothing_refused(tally, result)
    return tally.check(
        name,
        f"accept length {pair.STEPS + 1} in {_verifications(result)} verifications;"
        f" the target's tokens right; states before layers"
        f" {','.join(map(str, layers))}",
    )


def _diagnosed(tally: Tally, result: Result, variant: str) -> None:
    """What the canary makes of it, first of all; the rest is its evidence."""
    one = pair.VARIANTS[variant]
    found = measured(result, one.draft, one.generate)
    if not found.answers:
        return
    verdict = diagnose(found)
    if tally.expect(verdict.right, verdict.text):
        return
    for text in verdict.evidence:
        tally.expect(False, f"seen: {text}")
    for fault in verdict.faults:
        tell = f"; to tell: {fault.tell}" if fault.tell else ""
        tally.expect(False, f"may be: {fault.what}{tell}")


def _target_right(tally: Tally, result: Result, variant: str) -> None:
    """Greedy decoding gives the target's own tokens, whatever the draft proposes."""
    for one in pair.VARIANTS[variant].generate:
        entry = result.calls().get(one.name, {"error": "not reached"})
        if not tally.expect(not entry["error"], f"{one.name}: {entry['error']}"):
            continue
        for number, right in enumerate(one.continuations()):
            ids = entry["outputs"][number]["ids"]
            first = next(
                (n for n, (a, b) in enumerate(zip(ids, right)) if a != b), None
            )
            tally.expect(
                ids == right,
                f"{one.name}, prompt {number}: {len(ids)} tokens, of which the first"
                f" wrong is number {first}",
            )


def _drafts_right(tally: Tally, result: Result, variant: str) -> None:
    for one in pair.VARIANTS[variant].generate:
        entry = result.calls().get(one.name, {"error": "not reached"})
        if entry["error"]:
            continue
        for number, (output, wanted) in enumerate(
            zip(entry["outputs"], one.accepted())
        ):
            said = f"{one.name}, prompt {number}"
            form = expect.histogram(wanted, pair.STEPS)
            measured = histogram(output)
            tally.expect(
                measured in (None, form), f"{said}: histogram {measured}, not {form}"
            )
            count = output["meta"].get("spec_verify_ct")
            tally.expect(
                count == len(wanted),
                f"{said}: {count} verifications for {one.tokens} tokens, not"
                f" {len(wanted)}",
            )
        together = [count for row in zip(*one.accepted()) for count in row]
        for _, rank, lines in _ranks(result, one.name):
            # where the scheduler overlaps, one more may follow, of which nothing comes
            told = [count for line in lines for count in line["accepted"]]
            told = told[: len(together)]
            tally.expect(
                told == together,
                f"{one.name}, rank {rank}: the verifications accept {told}, not"
                f" {together}",
            )


def _only_drafts_wrong(result: Result, variant: str) -> bool:
    target, drafts = Tally(), Tally()
    _target_right(target, result, variant)
    _drafts_right(drafts, result, variant)
    return not target.failures and bool(drafts.failures)


def _nothing_refused(tally: Tally, result: Result) -> None:
    for call, _, lines in _ranks(result):
        names = {one["name"] for line in lines for one in line["standins_called"]}
        tally.expect(not names, f"{call}: asks {', '.join(sorted(names))} in vain")


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
    """By rank: the candidates of each verification."""
    ranks = call.get("ranks", {}).values()
    return [[line["candidates"] for line in lines] for lines in ranks]


# -- what taps say ------------------------------------------------------------------


def _story(tally: Tally, call: str, promise: Promise, rows: Sequence[Call]) -> None:
    """Whether the lines of one site agree with what the engine did."""
    layers = list(pair.plan().default_layers)
    said = f"{call}: {promise.site}"
    if "target.states" in promise.views:
        wanted = [n for n in layers if not promise.layers or n in promise.layers]
        for step, told in _by_step(rows):
            tally.expect(
                told == wanted, f"{said}: step {step} says layers {told}, not {wanted}"
            )
    if "target.joined" in promise.views:
        parts = {row["parts"] for row in rows if row.get("mode") == "TARGET_VERIFY"}
        tally.expect(
            parts == {len(layers)}, f"{said}: {sorted(parts)} parts, not {len(layers)}"
        )
    if "draft.entering" in promise.views and call == pair.SINGLE.name:
        fc = "".join("a" if row["fc"] == "applied" else "s" for row in rows)
        draft = "a" + "s" * (pair.STEPS - 1)
        whole = draft * (len(fc) // len(draft) + 1)
        tally.expect(
            bool(fc) and whole.startswith(fc),
            f"{said}: fc is not applied once and skipped {pair.STEPS - 1} times a"
            f" draft: {fc[:24]}",
        )
    tally.expect(bool(rows), f"{said} never spoke")


def _by_step(rows: Sequence[Call]) -> Iterator[tuple[int, list[int]]]:
    steps: dict[int, list[int]] = {}
    for row in rows:
        steps.setdefault(row["step"], []).append(row["layer"])
    yield from steps.items()


# -- facts --------------------------------------------------------------------------


def _unusable(name: str, evidence: Evidence, *jobs: str) -> Check | None:
    """As ``evidence.unusable``; where no engine runs, the first check says why."""
    first = evidence.one("patched-engine")
    if name != ACCEPT and ACCEPT in evidence.chosen and first and not first.ran:
        return cannot_run(name, f"the engine did not run: see {ACCEPT}")
    return unusable(name, evidence, *jobs)


def _ranks(result: Result, only: str = "") -> Iterator[tuple[str, int, list[Any]]]:
    """Call, rank, and what that rank's verifications were."""
    for call, entry in result.calls().items():
        if not only or call == only:
            for rank, lines in enumerate(entry.get("ranks", {}).values()):
                yield call, rank, lines


def _verifications(result: Result) -> int:
    return sum(len(lines) for _, rank, lines in _ranks(result) if rank == 0)


def _fused(result: Result) -> int:
    return max((line["fused"] for _, _, lines in _ranks(result) for line in lines[-1:]),
               default=0)  # fmt: skip


def _length(result: Result) -> float:
    """Mean tokens a verification, the bonus token included."""
    rows = [row for _, rank, lines in _ranks(result) if rank == 0 for row in lines]
    accepted = [count for row in rows for count in row["accepted"]]
    return 1 + sum(accepted) / len(accepted) if accepted else 0.0
