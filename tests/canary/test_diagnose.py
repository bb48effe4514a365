"""From measurements to verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from canarykit import answer

from patchkit.canary import faults
from patchkit.canary.chart import State, chart_of_candidates
from patchkit.canary.code import (
    MODULI,
    continuation,
    counting,
    number_at,
    number_of,
    token_of,
)
from patchkit.canary.diagnose import diagnose
from patchkit.canary.expect import losses
from patchkit.canary.measured import Answer, Measured
from patchkit.canary.plan import make_plan

PROMPTS = [counting(*one) for one in ((0, 3), (557, 9), (1204, 2), (1873, 33))]
PLAN = make_plan()


def measured(lost=(), *, draft="draft", tokens=121, chart=None, **more) -> Measured:
    answers = tuple(answer(one, tokens, lost, **more) for one in PROMPTS)
    return Measured(3, answers, draft, PLAN, chart)


def test_right():
    found = diagnose(measured())
    assert found.right and not found.faults and measured().mean == 4
    assert measured().counts == [0, 0, 0, 120]


@pytest.mark.parametrize("tokens", range(2, 12))
def test_right_whatever_the_last_step_is_cut_to(tokens):
    assert diagnose(measured(tokens=tokens)).right
    assert diagnose(measured(tokens=tokens, told=False)).right


@pytest.mark.parametrize("told", [True, False], ids=["histogram", "steps"])
def test_digits_are_named_from_the_steps_alone(told):
    """Where no other way to lose digits has the same steps."""
    named = 0
    for lost in list(losses())[1::17]:
        one = measured(lost, told=told)
        assert lost in one.fitting()
        found = diagnose(one)
        assert not found.right and set(found.lost) in (set(), set(lost))
        named += set(found.lost) == set(lost)
    assert named >= 5


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ({0: 1}, "slot 0 receives a state one layer late (made for: in front of 2)"),
        ({1: 2}, "slot 1 receives a state one layer early"),
        ({2: 0}, "slot 2 receives a state of another layer, farther off"),
        ({0: 0}, "slot 0 receives a state of another layer, one early or farther off"),
        ({0: 1, 1: 1, 2: 1}, "slots 0 and 1 and 2 receive states one layer late"),
        ({0: 0, 2: 0}, "may be slots 0 and 2 are swapped: the order is reversed"),
        ({1: 1, 2: 2}, "probably slots 1 and 2 are swapped"),
        ({4: 0}, "does not see the position before"),
        ({3: 0, 4: 0}, "nothing of the draft's own embedding"),
        ({1: 0, 3: 0, 4: 0}, "slot 1 receives a state of another layer, farther off"),
    ],
)
def test_what_lost_digits_mean(lost, said):
    chart = chart_of_candidates(_guesses(lost))
    found = diagnose(measured(lost, chart=chart))
    assert said in found.text and found.lost == lost and not found.right


def test_ids_that_are_ignored_are_named():
    found = diagnose(measured({2: 0}, draft="draft-ids"))
    assert "ids in the draft's config are ignored" in found.text


def _guesses(lost):
    """First candidates and right tokens of a draft that takes digits for others."""
    for number in range(2310):
        residues = [number % m for m in MODULI]
        for digit, value in lost.items():
            residues[digit] = value
        yield token_of(number_of(residues)), token_of(number)


def test_later_steps():
    found = diagnose(measured(most=1, chart=chart_of_candidates(_guesses({}))))
    assert found.faults == faults.LATER
    strict = measured(
        most=1, draft="draft-positions", chart=chart_of_candidates(_guesses({}))
    )
    assert diagnose(strict).faults == faults.POSITIONS


def _shifted(by):
    for number in range(2310):
        residues = [(number + d) % m for d, m in zip(by, MODULI)]
        yield token_of(number_of(residues)), token_of(number)


#: What digits that are one behind, or off by anything, leave open.
BEHIND = (*faults.NO_RESIDUAL, *faults.NO_MLP, faults.NO_LAYER)
UNKNOWN = (faults.ROWS, faults.SCALED, *faults.LEARNS_NOTHING[:2])


def _without_mlp():
    for number in range(2310):
        residues = [(number - 1) % m for m in MODULI[:3]]
        yield token_of(number_of([*residues, 0, 0])), token_of(number)


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        (list(_shifted((-1, -1, -1, 2, 3))), BEHIND),
        (list(_shifted((0, 0, 0, -1, -1))), faults.UNSHIFTED),
        ([(n, token_of(n)) for n in range(0, 2310, 2)], faults.FOREIGN),
        (list(_shifted((1, 1, 1, 1, 1))), faults.ROW_OFF),
        (list(_shifted((-2, -2, -2, -2, -2))), faults.ROW_OFF),
        (list(_shifted((1, 1, 2, 3, 4))), UNKNOWN),
        (list(_without_mlp()), BEHIND),
        ([], faults.NOTHING),
    ],
)
def test_nothing_accepted_is_told_apart_by_candidates(pairs, named):
    chart = chart_of_candidates(pairs) if pairs else None
    found = diagnose(measured(most=0, chart=chart))
    assert found.faults == named and "no candidate" in found.text


def test_a_part_of_the_values():
    pairs = []
    for n in range(2310):
        residues = [n % m for m in MODULI]
        residues[2] = min(residues[2], 2)
        pairs.append((token_of(number_of(residues)), token_of(n)))
    answers = tuple(
        Answer(one.prompt, one.tokens, 40, (20, 0, 10, 10))
        for one in measured().answers
    )
    chart = chart_of_candidates(pairs)
    for ranks, named in ((1, faults.PARTS), (2, (faults.SHARDS, *faults.PARTS))):
        found = diagnose(Measured(3, answers, "draft", PLAN, chart, ranks))
        assert found.text.endswith("a part of the values: modulo 5 only 0, 1, 2")
        assert found.faults == named


@pytest.mark.parametrize("lost", [{2: 0}, {0: 1, 1: 1, 2: 1}, {1: 2}])
def test_states_of_decode_or_of_prefill_only(lost):
    later = diagnose(measured(lost, first={}, streamed=True))
    assert later.lost == lost and later.faults[0] == faults.GRAPHS
    assert later.text.startswith("right in the first step")
    chart = chart_of_candidates(_guesses(lost))
    early = diagnose(measured({}, first=lost, chart=chart))
    assert early.lost == lost and early.faults[0] == faults.PREFILL


def test_no_form_and_several_ranks():
    answers = tuple(
        Answer(one.prompt, one.tokens, 90, (61, 28, 1)) for one in measured().answers
    )
    found = diagnose(Measured(3, answers, "draft", PLAN, None, 2))
    assert found.faults == (faults.SHARDS, *faults.PARTS)
    assert "probably" not in found.text


@pytest.mark.parametrize(
    ("digit", "named"),
    [(4, faults.TARGET_ATTENTION), (1, faults.TARGET_MLP)],
)
def test_the_target_is_judged_first(digit, named):
    one = measured({2: 0})
    first = one.answers[0]
    wrong = list(first.tokens)
    residues = [number_at(wrong[7]) % m for m in MODULI]
    residues[digit] = (residues[digit] + 1) % MODULI[digit]
    wrong[7] = token_of(number_of(residues))
    wrong[8:] = continuation([wrong[6], wrong[7]], len(wrong) - 8)
    bad = replace(one, answers=(replace(first, tokens=tuple(wrong)), *one.answers[1:]))
    found = diagnose(bad)
    assert found.text.startswith("the target itself") and found.faults == named
    assert str(MODULI[digit]) in found.text and "1 of 484 tokens" in found.evidence[0]


def test_tokens_that_are_no_numbers():
    one = measured()
    first = replace(one.answers[0], tokens=(2, *one.answers[0].tokens[1:]))
    found = diagnose(replace(one, answers=(first,)))
    assert found.faults == faults.TARGET_HEAD


def test_states_of_a_chart():
    chart = chart_of_candidates(_guesses({1: 2}))
    assert chart.states()[1] is State.LOST and chart.lost() == {1: 2}
    assert chart_of_candidates([]).states() == (State.UNKNOWN,) * 5


@pytest.mark.parametrize(
    ("own", "first"),
    [({0}, faults.SAME_PLACE), ({0, 1, 2}, faults.UNEVEN[0])],
    ids=["lost", "partly"],
)
def test_digits_of_the_embedding_that_are_right_at_times(own, first):
    """All positions alike: the one is lost, and the other right for some values."""
    pairs = []
    for n in range(2310):
        residues = [n % m for m in MODULI]
        residues[3] = residues[3] if residues[3] in own else min(own)
        residues[4] = residues[4] if residues[4] < 4 else (residues[4] + n) % 11
        pairs.append((token_of(number_of(residues)), token_of(n)))
    answers = tuple(
        Answer(one.prompt, one.tokens, 100, (90, 5, 5, 0)) for one in measured().answers
    )
    chart = chart_of_candidates(pairs)
    found = diagnose(Measured(3, answers, "draft", PLAN, chart))
    assert found.faults[0] == first and "probably" not in found.text
    assert "the digits from the states are right" in found.text


def test_a_value_that_does_not_say_which_layer_is_no_more_than_a_guess():
    """Layers 4, 5 and 7 for 2, 4 and 5 look like rotated ones."""
    lost = {0: 0, 1: 1, 2: 0}
    found = diagnose(measured(lost, chart=chart_of_candidates(_guesses(lost))))
    assert "probably" not in found.text and "may be slots are rotated" in found.text
