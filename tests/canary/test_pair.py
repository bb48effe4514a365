"""The pair's weights, run number by number: it counts, and loses what it should."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import pytest

from patchkit.canary import faults
from patchkit.canary.code import (
    DRAFT_VOCAB,
    VOCAB,
    continuation,
    counting,
    digits,
    number_at,
    number_of,
    token_of,
)
from patchkit.canary.draft import STRICT, TOLERANT, draft_tensors
from patchkit.canary.expect import right
from patchkit.canary.margins import prove
from patchkit.canary.plan import DRAFTS, Plan, make_plan
from patchkit.canary.simulate import Draft, Target
from patchkit.canary.target import target_tensors
from patchkit.canary.tensors import Tensor

PLANS = {
    "default": make_plan(),
    "float16, odd sizes": make_plan(
        layers=9, hidden=320, heads=12, dtype="float16", tp=3
    ),
    "bfloat16, two ranks": make_plan(layers=11, hidden=1024, dtype="bfloat16", tp=2),
}
plans = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


@cache
def target_of(plan: Plan) -> dict[str, Tensor]:
    return target_tensors(plan)


@cache
def draft_of(plan: Plan, back: float = TOLERANT) -> dict[str, Tensor]:
    return draft_tensors(plan, plan.default_layers, back=back)


def best(logits: dict[int, float]) -> int:
    return max(logits, key=logits.__getitem__)


def guesses(run, draft, text, layers, count, ahead=0):
    """Of the draft after ``text``: so many candidates, as tokens. ``ahead``: what its
    positions are off by from the second step on."""
    answer = best(run.logits(len(text) - 1))
    for position, token in enumerate([*text[1:], answer]):
        states = [run.states[layer][position] for layer in layers]
        logits, state = draft.step(token, draft.fused(states))
    found = [token_of(best(logits))]
    while len(found) < count:
        logits, state = draft.step(found[-1], state, len(draft.keys) + ahead)
        found.append(token_of(best(logits)))
    return found


@plans
def test_states_hold_the_number_and_nothing_else(plan):
    text = counting(1723, 3)
    run = Target(plan, target_of(plan), text)
    constants = {0: plan.constants.amplitude} | {
        1 + i: one for i, one in enumerate(plan.constants.fillers)
    }
    for layer, states in enumerate(run.states):
        (state,) = states[-1:]
        inside = {c: v for c, v in state.items() if abs(v) > 1e-6}
        assert {c: v for c, v in inside.items() if c < 5} == constants
        first = plan.block(layer)
        assert all(first <= c < first + 28 for c in inside if c >= 5)
        assert [v for c, v in inside.items() if c >= 5] == [1.0] * 5


@plans
@pytest.mark.parametrize("text", [counting(2307, 4), [2, 4, 6], [21, 4001, 333, 7]])
def test_the_target_goes_on_by_the_rule(plan, text):
    run = Target(plan, target_of(plan), text)
    for until in range(2, len(text) + 1):
        wanted = continuation(text[:until], 1)
        assert [best(run.logits(until - 1))] == wanted


@plans
@pytest.mark.parametrize("kind", DRAFTS)
def test_the_draft_guesses_what_comes(plan, kind):
    text = counting(411, 5)
    layers = DRAFTS[kind].layers(plan)
    back = STRICT if DRAFTS[kind].strict else TOLERANT
    run = Target(plan, target_of(plan), text)
    embedding = run.tensors["model.embed_tokens.weight"]
    draft = Draft(plan, draft_tensors(plan, layers, back=back), embedding)
    wanted = continuation(text, 5)[1:]
    assert guesses(run, draft, text, layers, 4) == wanted


WRONG = [
    *{(a, b, c) for a in (0, 1, 2, 3) for b in (3, 4, 5, 8) for c in (4, 5, 6, 8)},
    *permutations((2, 4, 5)),
]


@pytest.mark.parametrize("layers", sorted(set(WRONG)))
def test_a_wrong_layer_loses_its_digit(layers):
    """What is guessed, not only whether it is right."""
    plan = PLANS["default"]
    wanted = plan.default_layers
    taken = faults.Wiring("", layers, "").taken(wanted)
    text = counting(1000, 2)
    run = Target(plan, target_of(plan), text)
    draft = Draft(plan, draft_of(plan), run.tensors["model.embed_tokens.weight"])
    for guess, token in zip(
        guesses(run, draft, text, layers, 1), continuation(text, 2)[1:]
    ):
        expected = list(digits(number_at(token)))
        for digit, value in taken.items():
            expected[digit] = value
        assert guess == token_of(number_of(expected))
        assert (guess == token) is right(token, taken)


def test_without_embedding_two_digits_are_lost():
    plan = PLANS["default"]
    text = counting(74, 3)  # 78 is the candidate: 1 modulo 7 and 11
    run = Target(plan, target_of(plan), text)
    draft = Draft(plan, draft_of(plan), Tensor("F32", (VOCAB, plan.hidden)))
    (guess,) = guesses(run, draft, text, plan.default_layers, 1)
    assert digits(number_at(guess)) == (*digits(78)[:3], 0, 0)


@pytest.mark.parametrize(
    ("back", "good"),
    [(TOLERANT, [1, 1, 1]), (STRICT, [1, 0, 1])],
    ids=["any", "strict"],
)
def test_positions_one_too_high_from_the_second_step_on(back, good):
    plan = PLANS["default"]
    text = counting(411, 5)
    run = Target(plan, target_of(plan), text)
    embedding = run.tensors["model.embed_tokens.weight"]
    draft = Draft(plan, draft_of(plan, back), embedding)
    found = guesses(run, draft, text, plan.default_layers, 3, ahead=1)
    wanted = [
        continuation([*text, *continuation(text, 1), *found[:i]], 1)[0]
        for i in range(3)
    ]
    assert [int(a == b) for a, b in zip(found, wanted)] == good


@plans
def test_the_proof_has_room(plan):
    proof = prove(plan, target_of(plan), draft_of(plan))
    assert min(one.steps for one in proof.logits) >= 8
    assert min(one.nats for one in proof.attention) > 20


@plans
def test_every_rank_holds_a_part(plan):
    """Each shard of every MLP's and attention's output is needed."""
    tensors = target_of(plan) | draft_of(plan)
    for name, one in tensors.items():
        if not name.endswith(("down_proj.weight", "o_proj.weight")):
            continue
        share = one.shape[1] // plan.tp
        ranks = {column // share for row in one.rows.values() for column in row}
        assert ranks == set(range(plan.tp)), name


def test_rows_of_the_draft_vocabulary():
    plan = PLANS["default"]
    tensors = draft_of(plan)
    d2t = tensors["d2t"].rows[0]
    assert [int(n + d2t[n]) for n in range(5)] == [3, 5, 7, 9, 11]
    meant = [int(n + d2t[n]) for n in range(2368)]
    assert len(set(meant)) == 2368  # a token is meant by one row
    assert {n for n, one in tensors["t2d"].rows[0].items() if one} == set(meant)
    assert len(d2t) == DRAFT_VOCAB
