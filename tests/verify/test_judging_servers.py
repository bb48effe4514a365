"""The gates, ranks, fusion and the order of a server's start, on hand-made results."""

from __future__ import annotations

from dataclasses import replace

import pytest
import verifykit as kit
from verifykit import GOOD, STOCK, verdict

from patchkit.verify.evidence import Promise
from patchkit.verify.jobs import Result
from patchkit.verify.verdict import Check, Verdict

# -- ranks, fusion, order --------------------------------------------


def ranks(job: str, **more: object) -> list[Result]:
    facts = {**GOOD.facts, "fused_calls": 14}
    return [replace(GOOD, job=job, rank=rank, facts=facts, **more) for rank in (0, 1)]


PARTIAL = {**GOOD.tensors, "extend.states": kit.values(0.1, 1.0)} | {
    "decode.states": kit.values(0.2, 1.0)
}


def test_a_rank_that_differs_fails_tensor_parallel() -> None:
    one, other = ranks("patched-tp2")
    assert verdict("tensor-parallel", GOOD, one, other).verdict is Verdict.PASS
    other = replace(other, tensors=PARTIAL)
    check = verdict("tensor-parallel", GOOD, one, other)
    assert check.verdict is Verdict.FAIL and check.reason.startswith("rank 1: extend")


def test_fusion_that_never_engages_proves_nothing() -> None:
    ours = [replace(one, facts=GOOD.facts) for one in ranks("patched-fusion")]
    check = verdict("fusion", GOOD, *ours, same=True)
    assert check.verdict is Verdict.CANNOT_RUN and "did not engage" in check.reason
    check = verdict("fusion", GOOD, *ours, *ranks("baseline-fusion"))
    assert check.verdict is Verdict.FAIL


def test_calls_that_raise_before_any_fusion_are_what_is_said() -> None:
    broken = kit.changed(GOOD, "extend", error="ValueError: a shape")
    ours = [replace(broken, job="patched-fusion", rank=rank) for rank in (0, 1)]
    check = verdict("fusion", GOOD, *ours, *ranks("baseline-fusion"))
    assert check.verdict is Verdict.FAIL
    assert check.reason.startswith("rank 0: extend: ValueError: a shape")


def test_no_fused_all_reduce_is_not_applicable() -> None:
    facts = {**GOOD.facts, "fusion_available": False}
    ours = [replace(one, facts=facts) for one in ranks("patched-fusion")]
    assert verdict("fusion", GOOD, *ours, same=True).verdict is Verdict.NOT_APPLICABLE


def test_states_captured_before_the_all_reduce() -> None:
    ours = ranks("patched-fusion", tensors=PARTIAL)
    check = verdict("fusion", GOOD, *ours, same=True)
    assert (check.verdict, check.defects) == (
        Verdict.PASS,
        ("capture-before-all-reduce",),
    )
    blamed = verdict("fusion", GOOD, *ours, *ranks("baseline-fusion"))
    assert blamed.verdict is Verdict.FAIL
    fixed = verdict("fusion", GOOD, *ours, same=True, version="0.5.14")
    assert fixed.verdict is Verdict.FAIL


def test_wrong_logits_are_no_known_defect_of_fusion() -> None:
    tensors = {**PARTIAL, "extend.logits": kit.values(9.0, 9.0)}
    ours = ranks("patched-fusion", tensors=tensors)
    assert verdict("fusion", GOOD, *ours, same=True).verdict is Verdict.FAIL


def order(job: str, graph: list[int], prefill: list[int]) -> Result:
    calls = [kit.capturing("graph", graph, 2), kit.capturing("prefill", prefill)]
    return replace(GOOD, job=job, facts={**GOOD.facts, "calls": calls})


def test_graphs_and_prefill_capture_the_same_layers() -> None:
    name = "capture-order"
    differ = order("patched-order", [2, 4, 5], [2, 5, 7])
    agree = order("baseline-order", [2, 5, 7], [2, 5, 7])
    known = verdict(name, GOOD, differ, same=True)
    assert (known.verdict, known.defects) == (Verdict.PASS, ("graph-layers",))
    assert verdict(name, GOOD, differ, agree).verdict is Verdict.FAIL
    newer = verdict(name, GOOD, differ, same=True, version="0.5.11")
    assert newer.verdict is Verdict.FAIL
    right = verdict(name, GOOD, replace(agree, job="patched-order"), same=True)
    assert (right.verdict, right.defects) == (Verdict.PASS, ())


# -- the gates --------------------------------------------


def test_one_bit_fails_gate_off() -> None:
    bit = kit.values(1.0, -2.0000000000000004)
    run = replace(GOOD, tensors={**GOOD.tensors, "draft.logits": bit})
    check = verdict("gate-off", run, STOCK)
    assert check.verdict is Verdict.FAIL and "draft.logits: off by 4" in check.reason


def test_a_negative_zero_is_another_value() -> None:
    ours = replace(GOOD, tensors={**GOOD.tensors, "x": kit.values(-0.0)})
    theirs = replace(STOCK, tensors={**STOCK.tensors, "x": kit.values(0.0)})
    assert verdict("gate-off", ours, theirs).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"printed": ["tensor(1.0)"]}, "prints 'tensor(0.0)'"),
        ({"reads": {"deepseek_v2.forward:item": 1}}, "reads a tensor's values"),
        ({"taps": [{"site": "x"}]}, "writes with the gate off"),
        ({"error": "RuntimeError: x"}, "RuntimeError: x; the baseline: went well"),
    ],
)
def test_what_gate_off_must_not_do(facts: dict[str, object], said: str) -> None:
    check = verdict("gate-off", kit.changed(GOOD, "extend", **facts), STOCK)
    assert check.verdict is Verdict.FAIL and said in check.reason


def test_what_the_baseline_says_and_reads_the_tree_may_too() -> None:
    same = {"reads": {"a:item": 2}}
    ours = kit.changed(GOOD, "draft", printed=["[2026-01-01 10:00:00] x 1"], **same)
    theirs = kit.changed(STOCK, "draft", printed=["[2026-02-02 11:11:11] x 2"], **same)
    assert verdict("gate-off", ours, theirs).verdict is Verdict.PASS


def test_nothing_that_differs_is_not_applicable() -> None:
    assert verdict("gate-off", GOOD, same=True).verdict is Verdict.NOT_APPLICABLE
    assert verdict("gate-on", GOOD, same=True).verdict is Verdict.NOT_APPLICABLE


SEEN = {
    "site": "target.states", "call": "extend", "shape": [8, 64], "dtype": "float32",
    "norm": 2.0, "mean": 0.5, "absmax": 1.0, "nonfinite": 0, "layer": 2,
}  # fmt: skip
LINE = {
    **{"rank": 0, "step": 1, "model": "deepseek_v2"},
    **{key: value for key, value in SEEN.items() if key != "call"},
    "site": "aux",
}
PROMISES = (Promise("aux", ("target.states",)),)


def gated(*lines: dict[str, object], call: str = "extend") -> Check:
    run = kit.changed(kit.good_run("gated"), call, **kit.tapped(*lines))
    run = replace(run, facts={**run.facts, "observations": [SEEN]})
    return verdict("gate-on", GOOD, STOCK, run, promises=PROMISES)


def test_a_site_that_says_what_is_true() -> None:
    check = gated(LINE)
    assert (check.verdict, check.details) == (Verdict.PASS, ())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**LINE, "norm": 2.001}, "norm 2.001, not 2"),
        ({**LINE, "mean": None}, "mean None"),
        ({**LINE, "layer": 3}, "layer 3, not 2"),
        ({**LINE, "dtype": "bfloat16"}, "dtype bfloat16"),
        ({**LINE, "shape": [8, 65]}, "shape [8, 65]"),
        ({**LINE, "nonfinite": 1}, "nonfinite 1"),
        ({**LINE, "site": "other"}, "other speaks unannounced"),
        ({**LINE, "rank": 1}, "says it is rank 1"),
    ],
)
def test_a_site_that_says_what_is_not(line: dict[str, object], said: str) -> None:
    check = gated(line)
    assert check.verdict is Verdict.FAIL
    assert any(said in one for one in check.details)


def test_a_silent_site_a_double_one_and_one_out_of_turn() -> None:
    assert gated().details[-1] == "aux never spoke"
    assert "spoke 2 times, not 1" in gated(LINE, LINE).reason
    assert gated(LINE, call="decode").verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("word", "other", "said"),
    [
        ("shape=8x64", "shape=64x8", "differs from the JSON line: shape=64x8"),
        ("norm=2.0", "norm=2.1", "differs from the JSON line: norm=2.1"),
        ("mean=0.5", "mean=?", "differs from the JSON line: mean=?"),
        ("[aux]", "[ausx]", "differs from the JSON line: ausx"),
        ("EAGLE3_DEBUG", "", "0 lines in the log, 1 in the JSON file"),
    ],
)
def test_the_log_says_what_the_json_lines_say(word: str, other: str, said: str) -> None:
    told = kit.tapped(LINE)
    printed = [told["printed"][0].replace(word, other)]
    run = kit.changed(kit.good_run("gated"), "extend", **{**told, "printed": printed})
    run = replace(run, facts={**run.facts, "observations": [SEEN]})
    check = verdict("gate-on", GOOD, STOCK, run, promises=PROMISES)
    assert check.verdict is Verdict.FAIL and said in check.reason


def test_steps_go_on_from_call_to_call() -> None:
    run, seen = kit.good_run("gated"), []
    for name in ("extend", "decode"):
        run = kit.changed(run, name, **kit.tapped(LINE))
        seen.append({**SEEN, "call": name})
    run = replace(run, facts={**run.facts, "observations": seen})
    check = verdict("gate-on", GOOD, STOCK, run, promises=PROMISES)
    assert check.verdict is Verdict.FAIL and "say step 1 after step 1" in check.reason


def test_what_is_printed_when_imported() -> None:
    def imported(run: Result, *lines: str) -> Result:
        return replace(run, facts={**run.facts, "imported": list(lines)})

    ours = imported(GOOD, "/tmp/ours/a.py:7: SyntaxWarning")
    theirs = imported(STOCK, "/tmp/theirs/a.py:6: SyntaxWarning")
    assert verdict("gate-off", ours, theirs).verdict is Verdict.PASS
    check = verdict("gate-off", imported(GOOD, "hello"), theirs)
    assert check.reason == "prints when imported: 'hello'"


def test_a_promise_of_some_layers_holds_for_these() -> None:
    run = kit.good_run("gated")
    other = {**SEEN, "layer": 5}
    run = kit.changed(run, "extend", **kit.tapped(LINE))
    run = replace(run, facts={**run.facts, "observations": [SEEN, other]})
    promises = (Promise("aux", ("target.states",), frozenset({2})),)
    check = verdict("gate-on", GOOD, STOCK, run, promises=promises)
    assert check.verdict is Verdict.PASS
