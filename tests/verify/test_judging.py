"""Each check on hand-made results: what it must catch, and what it must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import verifykit as kit
from verifykit import GOOD, STOCK, evidence_of, verdict

from patchkit.verify.checks import CHECKS
from patchkit.verify.evidence import Promise
from patchkit.verify.jobs import IMPORT, Result
from patchkit.verify.judge.model import goldens
from patchkit.verify.verdict import Check, Tally, Verdict


@pytest.mark.parametrize(
    "name", ["import", "weights", "capture", "draft", "decode", "gate-off"]
)
def test_a_good_run_passes(name: str) -> None:
    check = verdict(name, GOOD, STOCK)
    assert (check.verdict, check.details) == (Verdict.PASS, ())
    assert check.compared > 0


# -- import and weights --------------------------------------------


def test_a_stand_in_called_in_a_forward_pass_fails_import() -> None:
    one = {"name": "triton.x", "phase": "forward extend", "called_by": "a.py:3"}
    run = replace(GOOD, facts={**GOOD.facts, "standins_called": [one]})
    check = verdict("import", run, STOCK)
    assert check.verdict is Verdict.FAIL
    assert check.reason == "forward extend: stand-in triton.x was called by a.py:3"


@pytest.mark.parametrize("kind", ["unwritten", "dropped"])
def test_weights(kind: str) -> None:
    bad = {"unwritten": [], "dropped": []} | {kind: ["fc.weight"]}
    facts = {**GOOD.facts, "weights": {"draft": bad}}
    check = verdict("weights", replace(GOOD, facts=facts), STOCK)
    assert check.verdict is Verdict.FAIL and "fc.weight" in check.reason


# -- capture --------------------------------------------


@pytest.mark.parametrize(
    ("call", "facts", "said"),
    [
        ("extend", {"captured": [1, 4, 6]}, "wanted layers [2, 5, 7]"),
        ("extend", {"captured": [7, 5, 2]}, "layer 7, layer 5, layer 2"),
        ("decode", {"captured": [2, 5, None]}, "no layer's (closest: 7, off by 0)"),
        ("extend-default", {"captured": [2, 4, 6]}, "wanted layers [2, 4, 5]"),
        ("extend-shifted", {"captured": [2, 4, 6]}, "wanted layers [3, 5, 7]"),
        ("extend-last", {"rows": [8, 2]}, "8 rows, not 2"),
        ("extend-logprobs", {"captured": None}, "no hidden states came back"),
        ("extend-logprobs", {"error": "RuntimeError: x"}, "RuntimeError: x"),
        ("prefill", {"captured": [2, 5], "width": 128}, "128 columns wide"),
    ],
)
def test_a_wrong_capture_fails(call: str, facts: dict[str, object], said: str) -> None:
    check = verdict("capture", kit.changed(GOOD, call, **facts), STOCK)
    assert check.verdict is Verdict.FAIL
    assert check.reason.startswith(call) and said in check.reason


def test_ids_whose_first_is_not_1_mean_what_they_mean_in_the_baseline() -> None:
    newer = {"captured": [2, 4, 6]}
    ours = kit.changed(GOOD, "extend-shifted", **newer)
    theirs = kit.changed(STOCK, "extend-shifted", **newer)
    assert verdict("capture", ours, theirs).verdict is Verdict.PASS
    assert verdict("capture", GOOD, theirs).verdict is Verdict.FAIL
    nonsense = kit.changed(GOOD, "extend-shifted", captured=[1, 2, 3])
    both = verdict("capture", nonsense, same=True)
    assert both.verdict is Verdict.FAIL


def test_a_release_without_capture_is_not_applicable() -> None:
    ours, theirs = (
        kit.good_run(captures=False),
        kit.good_run("baseline", captures=False),
    )
    assert verdict("capture", ours, theirs).verdict is Verdict.NOT_APPLICABLE
    assert verdict("capture", ours, STOCK).verdict is Verdict.FAIL


UNFILLED = {"error": "TypeError: cat(): argument 'tensors' must be a tuple"}


def test_a_known_defect_is_listed_only_if_the_baseline_has_it() -> None:
    ours = kit.changed(GOOD, "extend-logprobs-last", **UNFILLED)
    theirs = kit.changed(STOCK, "extend-logprobs-last", **UNFILLED)
    check = verdict("capture", ours, theirs)
    assert (check.verdict, check.defects) == (Verdict.PASS, ("logprobs-last",))
    assert verdict("capture", ours, STOCK).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.5.10.post1", Verdict.PASS),
        ("0.5.11", Verdict.FAIL),
        ("unknown", Verdict.PASS),
    ],
)
def test_a_known_defect_is_known_of_some_releases(
    version: str, expected: Verdict
) -> None:
    ours = kit.changed(GOOD, "extend-logprobs-last", **UNFILLED)
    assert verdict("capture", ours, same=True, version=version).verdict is expected


# -- draft and decode --------------------------------------------


@pytest.mark.parametrize(
    ("call", "facts", "said"),
    [
        ("draft", {"fc_calls": 0}, "fc ran 0 times, not 1"),
        ("draft", {"fc_calls": 2}, "fc ran 2 times, not 1"),
        ("draft-decode", {"fc_calls": 1, "fc_received_equal": True}, "not 0"),
        ("draft", {"fc_received_equal": False}, "fc received other values"),
        ("draft", {"entering_equal": False}, "is not what fc returns"),
        ("draft-decode", {"entering_equal": False}, "the state it was given"),
        ("draft", {"handed_on_equal": False}, "is not its last stream"),
    ],
)
def test_a_wrong_draft_fails(call: str, facts: dict[str, object], said: str) -> None:
    check = verdict("draft", kit.changed(GOOD, call, **facts), STOCK)
    assert check.verdict is Verdict.FAIL and said in check.reason


def test_the_hot_token_map() -> None:
    for wrong in (None, list(range(64))):
        run = replace(GOOD, facts={**GOOD.facts, "hot_tokens": wrong})
        assert verdict("draft", run, STOCK).verdict is Verdict.FAIL


def test_decode_must_equal_prefill() -> None:
    tensors = {**GOOD.tensors, "prefill.logits": kit.values(1.0, -2.01)}
    check = verdict("decode", replace(GOOD, tensors=tensors), STOCK)
    assert check.verdict is Verdict.FAIL and "off by 0.01" in check.reason


# -- workers that did not come back --------------------------------------------


def broken(step: str, error: str, *, job: str = "patched", **facts: object) -> Result:
    return Result(job, 0, "failed", step, error, facts=facts)


def test_an_import_that_only_the_tree_fails_is_its_fault() -> None:
    run = broken(IMPORT, "ModuleNotFoundError: No module named 'x'")
    assert verdict("import", run, STOCK).verdict is Verdict.FAIL
    assert verdict("import", run, same=True).verdict is Verdict.CANNOT_RUN


def test_wrong_syntax_is_the_trees_fault_in_any_case() -> None:
    facts = {"raised_in": ["/o/llama_eagle3.py"]}
    run = broken(IMPORT, "SyntaxError: invalid syntax", **facts)
    mine = frozenset({"/o/llama_eagle3.py"})
    check = verdict("import", run, same=True, overlaid=mine)
    assert check.verdict is Verdict.FAIL
    other = verdict("import", run, same=True, overlaid=frozenset({"/o/x.py"}))
    assert other.verdict is Verdict.CANNOT_RUN


def test_a_set_up_that_fails_for_both_is_nobodys_pass() -> None:
    error = "AttributeError: module 'torch' has no attribute 'x'"
    ours = broken("distributed", error)
    theirs = broken("distributed", error, job="baseline")
    check = verdict("capture", ours, theirs)
    assert check.verdict is Verdict.CANNOT_RUN and "distributed" in check.reason


def test_the_check_of_the_failing_step_fails_and_others_point_to_it() -> None:
    run = Result("patched", 0, "died", "forward draft", "killed by SIGSEGV")
    chosen = ("capture", "draft")
    assert verdict("draft", run, STOCK, chosen=chosen).verdict is Verdict.FAIL
    other = verdict("capture", run, STOCK, chosen=chosen)
    assert other.verdict is Verdict.CANNOT_RUN and "see draft" in other.reason
    alone = verdict("capture", run, STOCK, chosen=("capture",))
    assert alone.verdict is Verdict.FAIL


def test_a_hung_worker_is_known_to_have_hung() -> None:
    run = Result("patched", 0, "hung", "forward extend", "no end after 5 s")
    assert verdict("capture", run, STOCK).hung


def two_ranks(*results: Result, **more: Any) -> Check:
    chosen = ("import", "tensor-parallel")
    return verdict("tensor-parallel", GOOD, STOCK, *results, chosen=chosen, **more)


def test_what_could_not_be_run_here_says_why() -> None:
    run = Result("patched-tp2", 0, "refused", error="2 ranks need 2 CUDA devices")
    check = two_ranks(run)
    assert check.verdict is Verdict.CANNOT_RUN
    assert (check.reason, check.details) == ("2 ranks need 2 CUDA devices", ())


def test_two_ranks_that_fail_far_from_the_tree_are_not_its_fault() -> None:
    """One rank of the baseline ran, which says nothing of two."""
    far = broken("distributed", "ValueError: x", job="patched-tp2", raised_in=["/a.py"])
    mine = frozenset({"/o/llama_eagle3.py"})
    assert two_ranks(far, overlaid=mine).verdict is Verdict.CANNOT_RUN
    near = replace(far, facts={"raised_in": ["/a.py", *mine]})
    assert two_ranks(near, overlaid=mine).verdict is Verdict.FAIL


def test_a_variant_that_fails_as_the_plain_job_did_points_to_its_check() -> None:
    error = "NameError: name 'sgl_kernel' is not defined"
    plain = broken("distributed", error)
    order = replace(plain, job="patched-order", trace=("told once",))
    chosen = ("import", "capture-order")
    ours = verdict("capture-order", plain, order, STOCK, chosen=chosen)
    assert ours.verdict is Verdict.CANNOT_RUN
    assert ours.reason == "the models did not run: see import"
    other = replace(order, error="OSError: another")
    alone = verdict("capture-order", plain, other, STOCK, chosen=chosen)
    assert "OSError" in alone.reason


def test_the_golden_statistics_have_a_tolerance_of_their_own_on_cuda() -> None:
    golden = evidence_of(GOOD).shape["golden"]["bfloat16"]
    tensors = {k: kit.values(1.02 * known[0]) for k, known in golden.items()}
    run = replace(GOOD, tensors=tensors)
    for device, right in (("cpu", False), ("cuda", True)):
        tally = Tally()
        evidence = evidence_of(run, info={"device": device})
        goldens(tally, evidence, run, "bfloat16")
        assert (not tally.failures) is right


@pytest.mark.parametrize(
    "said",
    [
        "TypeError: cat(): argument 'tensors' must be tuple of Tensors, not NoneType",
        "TypeError: cat() received an invalid combination of arguments - got"
        " (NoneType, dim=int), but expected one of:",
    ],
)
def test_a_known_defect_is_recognised_as_every_torch_words_it(said: str) -> None:
    ours, theirs = (
        kit.changed(run, "extend-logprobs-last", error=said) for run in (GOOD, STOCK)
    )
    check = verdict("capture", ours, theirs)
    assert check.defects == ("logprobs-last",)


def test_a_job_that_was_not_run_is_never_a_pass() -> None:
    for name, kind in CHECKS.items():
        if kind.judge is not None and name != "gate-on":
            promised = (Promise("aux", ("target.states",)),)
            found = verdict(name, promises=promised, fixed=frozenset({name}))
            assert found.verdict is Verdict.CANNOT_RUN, name


def test_a_pass_without_a_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="without a comparison"):
        Check("x", Verdict.PASS)
