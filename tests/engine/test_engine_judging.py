"""The engine checks on made-up facts: what passes, and what each fault is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from patchkit.canary import code, expect
from patchkit.verify import pair
from patchkit.verify.answers import verifications
from patchkit.verify.checks import CHECKS
from patchkit.verify.evidence import Evidence, Promise
from patchkit.verify.jobs import Result
from patchkit.verify.probe.engine.failure import read_failure
from patchkit.verify.verdict import Check, Verdict

DEFAULT, NAMED = list(pair.plan().default_layers), list(pair.plan().id_layers)
Lines = list[dict[str, Any]]


def guess(right: int, lost: Mapping[int, int]) -> int:
    residues = list(code.digits(code.number_at(right)))
    for digit, value in lost.items():
        residues[digit] = value
    return code.token_of(code.number_of(residues))


def state(layer: int, token: int, *, own: Callable[[int], bool]) -> list[Any]:
    """In front of ``layer``, of the token before ``token``; a digit that is not
    ``own`` is still in the block before."""
    plan = pair.plan()
    constants = plan.constants
    row = {0: float(constants.amplitude)}
    row |= {1 + n: float(x) for n, x in enumerate(constants.fillers)}
    number = code.number_at(token) - 1
    for digit, (start, modulus) in enumerate(zip(code.STARTS, code.MODULI)):
        block = plan.block(layer if own(digit) else layer - 1)
        row[block + start + number % modulus] = 1.0
    return [[c, x] for c, x in sorted(row.items())]


def handed(
    tokens: list[int],
    layers: list[int],
    *,
    own: Callable[[int], bool] = lambda digit: True,
    factor: float = 1.0,
    fc: bool = True,
) -> dict[str, Any]:
    """A pass of the draft's, with the states of these tokens."""
    hidden = pair.plan().hidden
    rows = [
        [
            [slot * hidden + c, x * factor]
            for slot, layer in enumerate(layers)
            for c, x in state(layer, token, own=own)
        ]
        for token in tokens
    ]
    width = len(layers) * hidden
    return {"prefill": True, "width": width, "hidden": hidden, "fc": fc,
            "tokens": tokens, "rows": rows}  # fmt: skip


TOKENS = code.counting(700, 4)


def with_states(result: Result, *passes: dict[str, Any]) -> Result:
    """``passes``: by rank."""
    for call in result.facts["calls"]:
        for (name, (first, *more)), one in zip([*call["ranks"].items()], passes):
            call["ranks"][name] = [first | {"handed": [one]}, *more]
    return result


def parts(fc: bool = True, layers: list[int] | None = None) -> list[dict[str, Any]]:
    """Of each of two ranks: digits 0 and 1 are the first's, 2 and 3 the other's, the
    last is moved by attention, whose sums are complete."""
    mine = ({0, 1, 4}, {2, 3, 4})
    return [
        handed(TOKENS, layers or DEFAULT, own=own.__contains__, fc=fc) for own in mine
    ]


def output(one: pair.Generate, number: int, lost: Mapping[int, int]) -> dict[str, Any]:
    accepted = expect.accept_sequence(one.prompts[number], one.tokens, pair.STEPS, lost)
    counts = expect.histogram(accepted, pair.STEPS)
    while not counts[-1]:  # as SGLang gives it
        counts.pop()
    return {
        "ids": one.continuations()[number],
        "meta": {"spec_verify_ct": len(accepted), "spec_accept_histogram": counts},
    }


def lines(
    one: pair.Generate, lost: Mapping[int, int], layers: list[int], fused: int
) -> Lines:
    """One a verification, as a rank's scheduler says it, of all prompts together."""
    texts = [
        code.continuation(prompt, one.tokens + 2 * pair.STEPS + 2)
        for prompt in one.prompts
    ]
    at = [0] * len(texts)
    found = []
    while min(at) + 1 < one.tokens:
        rows = [n for n in range(len(texts)) if at[n] + 1 < one.tokens]
        told = [texts[n][at[n] + 1 : at[n] + 2 + pair.STEPS] for n in rows]
        guesses = [[guess(token, lost) for token in row[:-1]] for row in told]
        accepted = []
        for row, right in zip(guesses, told):
            wrong = [k for k in range(pair.STEPS) if row[k] != right[k]]
            accepted.append(wrong[0] if wrong else pair.STEPS)
        found.append(
            {
                "candidates": [
                    [texts[n][at[n]], *row] for n, row in zip(rows, guesses)
                ],
                "target": told,
                "accepted": accepted,
                "fused": fused,
                "layers": layers,
                "standins_called": [],
                "replaced": {},
            }
        )
        for n, count in zip(rows, accepted):
            at[n] += count + 1
    return found


def ran(
    job: str, lost: Mapping[int, int] | None = None, *, layers: list[int] | None = None,
    fused: int = 0,
) -> Result:  # fmt: skip
    variant = job.partition("-")[2]
    held = layers or (NAMED if variant == "engine-ids" else DEFAULT)
    calls = []
    for one in pair.VARIANTS[variant].generate:
        told = lines(one, lost or {}, held, fused)
        outputs = [output(one, n, lost or {}) for n in range(len(one.prompts))]
        ranks = {f"{rank}.jsonl": told for rank in range(pair.VARIANTS[variant].tp)}
        calls.append(
            {"call": one.name, "error": "", "outputs": outputs, "ranks": ranks}
            | {"taps": [], "printed": []}
        )
    return Result(job, 0, "ran", facts={"calls": calls, "fusion_available": True})


def judged(name: str, *results: Result, **more: Any) -> Check:
    judge = CHECKS[name].judge
    assert judge is not None
    found = {one.job: [one] for one in results}
    return judge(Evidence(found, **{"version": "0.5.9", "chosen": (name,), **more}))


@pytest.mark.parametrize("name", ["accept", "ids", "tp"])
def test_a_right_engine_passes(name: str) -> None:
    variant = "engine" if name == "accept" else f"engine-{name}"
    check = judged(f"engine-{name}", ran(f"patched-{variant}"))
    assert check.verdict is Verdict.PASS and check.compared > 20, check


def test_states_are_counted() -> None:
    bare = judged("engine-accept", ran("patched-engine"))
    seen = with_states(ran("patched-engine"), handed(TOKENS, DEFAULT))
    check = judged("engine-accept", seen)
    count = 2 * 3 * len(TOKENS)  # calls, slots, rows
    assert check.compared == bare.compared + count
    assert f"{count} states before layers" in check.reason


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ({0: 0}, "slot 0 "),
        ({1: code.LATE}, "slot 1"),
        ({2: code.EARLY}, "slot 2"),
        ({0: 0, 1: 0, 2: 0}, "slots 1 and 2 "),
        ({3: 0, 4: 0}, "embedding"),
    ],
)
def test_a_lost_digit_names_its_slot(lost: dict[int, int], words: str) -> None:
    check = judged("engine-accept", ran("patched-engine", lost))
    assert check.verdict is Verdict.FAIL
    assert words in check.reason, check
    assert any("histogram" in line for line in check.details)


def changed(result: Result, change: Callable[[list[Any]], None]) -> Result:
    change(result.facts["calls"])
    return result


def test_wrong_tokens_of_the_target_are_said_first() -> None:
    def spoil(calls: list[Any]) -> None:
        calls[1]["outputs"][2]["ids"][5] += 2

    check = judged("engine-accept", changed(ran("patched-engine"), spoil))
    assert check.reason.startswith("the target itself"), check


def test_layers_that_sglang_does_not_hold() -> None:
    check = judged("engine-ids", ran("patched-engine-ids", layers=DEFAULT))
    assert f"SGLang captures {DEFAULT}, not {NAMED}" in check.reason


def test_one_rank_alone_may_be_wrong() -> None:
    def spoil(calls: list[Any]) -> None:
        calls[0]["ranks"]["1.jsonl"] = lines(pair.SINGLE, {0: 0}, DEFAULT, 0)

    check = judged("engine-tp", changed(ran("patched-engine-tp"), spoil))
    assert check.verdict is Verdict.FAIL and "rank 1" in check.reason


PARTS = {0: 0, 1: 0}


def fusing(whose: str, lost: Mapping[int, int], *passes: dict[str, Any]) -> Result:
    result = ran(f"{whose}-engine-fusion", lost, fused=7)
    return with_states(result, *(passes or (parts() if lost else ())))


@pytest.mark.parametrize(
    ("ours", "theirs", "more", "verdict"),
    [
        (PARTS, PARTS, {}, Verdict.PASS),
        (PARTS, PARTS, {"fixed": frozenset({"fusion"})}, Verdict.FAIL),
        (PARTS, PARTS, {"version": "0.5.15"}, Verdict.FAIL),
        ({2: 0}, PARTS, {}, Verdict.FAIL),
        (PARTS, {}, {}, Verdict.FAIL),
        ({}, PARTS, {"fixed": frozenset({"fusion"})}, Verdict.PASS),
    ],
)
def test_the_known_defect_of_fusion(
    ours: dict[int, int], theirs: dict[int, int], more: Any, verdict: Verdict
) -> None:
    check = judged(
        "engine-fusion",
        ran("patched-engine"),
        fusing("patched", ours),
        fusing("baseline", theirs),
        same=False,
        **more,
    )
    assert check.verdict is verdict, check
    excused = verdict is Verdict.PASS and bool(ours)
    assert check.defects == (("capture-before-all-reduce",) if excused else ())


NOTHING = dict.fromkeys(range(5), 0)


@pytest.mark.parametrize(
    ("alone", "passes"),
    [
        ([], parts()),  # one rank was not run
        ([ran("patched-engine", NOTHING)], parts()),  # or is wrong itself
        ([ran("patched-engine")], parts(fc=False)),
        ([ran("patched-engine")], parts(layers=[n + 1 for n in DEFAULT])),
        ([ran("patched-engine")], [handed(TOKENS, DEFAULT, factor=0.5)] * 2),
        ([ran("patched-engine")], [handed(TOKENS, DEFAULT)] * 2),
    ],
    ids=["unknown", "alone", "fc", "layers", "scaled", "right"],
)
def test_another_fault_is_not_excused_by_the_defect_of_fusion(
    alone: list[Result], passes: list[dict[str, Any]]
) -> None:
    """With nothing applied: the baseline is the tree itself, and as wrong."""
    found = fusing("patched", PARTS, *passes)
    check = judged("engine-fusion", *alone, found)
    assert check.verdict is Verdict.FAIL and not check.defects, check


def stepping(lost: Mapping[int, int]) -> Result:
    """Each verification accepts one; the second candidate lacks these digits."""
    result = ran("patched-engine-steps")
    (call,) = result.facts["calls"]
    text = code.continuation(pair.SINGLE.prompts[0], pair.SINGLE.tokens + 8)
    told = [text[at : at + 5] for at in range(0, pair.SINGLE.tokens - 1, 2)]
    right = handed(TOKENS, DEFAULT)
    found = [
        {"candidates": [[row[0], row[1], _off(row[2], lost), row[3]]],
         "target": [row[1:]], "accepted": [1], "fused": 0, "layers": DEFAULT,
         "standins_called": [], "replaced": {}, "handed": [right]}
        for row in told
    ]  # fmt: skip
    meta = {"spec_verify_ct": len(found), "spec_accept_histogram": [0, len(found)]}
    call["outputs"][0]["meta"] = meta
    call["ranks"] = {"0.jsonl": found}
    return result


def _off(token: int, by: Mapping[int, int]) -> int:
    residues = list(code.digits(code.number_at(token)))
    for digit, more in by.items():
        residues[digit] += more
    return code.token_of(code.number_of(residues))


@pytest.mark.parametrize(
    ("alone", "off", "verdict"),
    [
        ({}, {code.BEFORE: 1}, Verdict.PASS),
        ({1: 0}, {code.BEFORE: 1}, Verdict.FAIL),  # a draft that does not mind, too
        ({}, {0: 1, 1: 1}, Verdict.FAIL),
        ({}, {code.BEFORE: 1, 2: 1}, Verdict.FAIL),
    ],
)
def test_the_known_defect_of_later_steps(
    alone: dict[int, int], off: dict[int, int], verdict: Verdict
) -> None:
    check = judged("engine-steps", ran("patched-engine", alone), stepping(off))
    assert check.verdict is verdict, check
    excused = verdict is Verdict.PASS
    assert check.defects == (("draft-positions",) if excused else ())


def test_fc_may_be_applied_without_being_called() -> None:
    """By ``linear`` with its weight, say: right candidates are proof of it."""
    one = handed(TOKENS, DEFAULT, fc=False)
    check = judged("engine-accept", with_states(ran("patched-engine"), one))
    assert check.verdict is Verdict.PASS, check
    wrong = with_states(ran("patched-engine", {1: 0}), one)
    check = judged("engine-accept", wrong)
    assert check.verdict is Verdict.FAIL
    assert "fc is not applied to the states" in check.reason


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (handed(TOKENS, DEFAULT, factor=0.5), "states multiplied by 0.5"),
        (handed(TOKENS, [2, 5, 4]), "in front of layers 5 and 4 (made for"),
        (handed(TOKENS, DEFAULT, own={4}.__contains__), "the residual alone"),
        (handed(TOKENS, [2, 4]), "768 are 2 of 3 states"),
        ({**handed(TOKENS, DEFAULT), "tokens": TOKENS[::-1]}, "of other tokens"),
        ({**handed(TOKENS, DEFAULT), "rows": [[]] * 4}, "slots 0, 1 and 2 receive zer"),
    ],
)
def test_wrong_states_are_seen_though_every_candidate_is_accepted(
    one: dict[str, Any], words: str
) -> None:
    check = judged("engine-accept", with_states(ran("patched-engine"), one))
    assert check.verdict is Verdict.FAIL, check
    assert words in check.reason and "accepted all the same" in check.reason, check


def test_right_states_are_told_where_the_fault_lies_behind() -> None:
    result = with_states(ran("patched-engine", {1: 0}), handed(TOKENS, DEFAULT))
    check = judged("engine-accept", result)
    assert "slot 1 is lost, though the states are right" in check.reason, check


MISFIT = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x768 and 1152x384)"


def ended(job: str, error: str = MISFIT, step: str = "forward single") -> Result:
    facts = {"calls": [], "raised_in": ["torch/linear.py", "/o/llama_eagle3.py"]}
    return Result(job, 0, "failed", step=step, error=error, facts=facts)


@pytest.mark.parametrize(
    ("results", "more", "verdict"),
    [
        ([ended("patched-engine")], {}, Verdict.FAIL),
        ([ended("patched-engine"), ran("baseline-engine")], {"same": False},
         Verdict.FAIL),
        ([ended("patched-engine"), ended("baseline-engine")], {"same": False},
         Verdict.CANNOT_RUN),
        ([ended("patched-engine", step="start the engine")], {}, Verdict.CANNOT_RUN),
        ([ended("patched-engine", "a.b.StandInCalled: triton")], {},
         Verdict.CANNOT_RUN),
    ],
)  # fmt: skip
def test_an_engine_that_ends_in_the_model_s_forward(
    results: list[Result], more: Any, verdict: Verdict
) -> None:
    files = frozenset({"/o/llama_eagle3.py"})
    check = judged("engine-accept", *results, overlaid=files, **more)
    assert check.verdict is verdict, check
    words = "2 of 3 states reach fc: 768 columns, and fc takes 1152"
    assert (words in check.reason) == (verdict is Verdict.FAIL), check
    ids = replace(results[0], job="patched-engine-ids")
    both = {"chosen": ("engine-accept", "engine-ids"), "overlaid": files, **more}
    check = judged("engine-ids", *results, ids, **both)
    assert check.verdict is verdict and "see engine-accept" in check.reason


def test_an_emulation_that_never_engages_proves_nothing() -> None:
    jobs = [ran(f"{whose}-engine-fusion") for whose in ("patched", "baseline")]
    assert judged("engine-fusion", *jobs, same=False).verdict is Verdict.CANNOT_RUN


SITES = (
    Promise("states", ("target.states",)),
    Promise("entering", ("draft.entering",)),
)


def tapping(layers: list[int], fc: str) -> Result:
    def tap(calls: list[Any]) -> None:
        rows = [{"site": "states", "step": 1, "layer": n} for n in layers]
        steps = [
            {"site": "entering", "fc": "applied" if letter == "a" else "skipped"}
            for letter in fc
        ]
        for call in calls:
            call["taps"] = rows + steps

    return changed(ran("gated-engine"), tap)


@pytest.mark.parametrize(
    ("layers", "fc", "wrong"),
    [
        (DEFAULT, "assassa", ""),
        (DEFAULT, "aass", "fc is not applied once"),
        (DEFAULT, "assss", "fc is not applied once"),
        (DEFAULT[1:], "ass", "says layers"),
        (DEFAULT[::-1], "ass", "says layers"),
    ],
)
def test_taps_tell_the_engines_story(layers: list[int], fc: str, wrong: str) -> None:
    check = judged(
        "engine-gate-on",
        tapping(layers, fc),
        ran("baseline-engine"),
        same=False,
        promises=SITES,
    )
    assert (check.verdict is Verdict.PASS) is not wrong, check
    assert wrong in check.reason


def test_other_drafts_than_the_baselines() -> None:
    check = judged(
        "engine-gate-off",
        ran("patched-engine", {1: 0}),
        ran("baseline-engine"),
        same=False,
    )
    assert check.verdict is Verdict.FAIL and "another histogram" in check.reason


@pytest.mark.parametrize("name", [n for n, one in CHECKS.items() if one.engine])
def test_where_no_engine_ran_nothing_passes(name: str) -> None:
    check = judged(name, promises=SITES, same=False)
    assert check.verdict is Verdict.CANNOT_RUN
    if name != "engine-accept":
        hung = Result("patched-engine", 0, "hung", error="no end after 60 s")
        more = {"chosen": ("engine-accept", name), "promises": SITES, "same": False}
        assert "see engine-accept" in judged(name, hung, **more).reason


def test_why_an_engine_ended_is_read_from_its_log() -> None:
    log = """[t] Loading
[t] Scheduler hit an exception: Traceback (most recent call last):
  File "/sglang/srt/managers/scheduler.py", line 9, in run
    self.forward()
  File "/sglang/srt/models/deepseek_v2.py", line 7, in forward
    raise ValueError("no such layer: 9")
ValueError: no such layer: 9

[t] Received sigquit from a child process.
"""
    found = read_failure("Process-1 ended with 1", log)
    assert str(found) == "ValueError: no such layer: 9"
    assert found.raised_in[0].endswith("deepseek_v2.py")
    assert str(read_failure("Process-1 ended by SIGKILL", "[t] x")) == (
        "Process-1 ended by SIGKILL"
    )


def test_requests_of_a_batch_may_begin_one_after_another() -> None:
    """Four verifications of two requests, and one more, of which nothing comes."""
    lines = [{"accepted": one} for one in ([3], [3, 3], [3], [0])]
    outputs = [{"meta": {"spec_verify_ct": 2}}] * 2
    found = verifications({"outputs": outputs, "ranks": {"0": lines}})
    assert found == lines[:3]
