"""The states that the draft is handed, against what they should be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from patchkit.canary.code import counting, draft_token, next_token, number_at
from patchkit.canary.draft import draft_tensors
from patchkit.canary.ended import frames, in_words
from patchkit.canary.plan import Plan, make_plan
from patchkit.canary.received import received_text
from patchkit.canary.simulate import Draft, Target
from patchkit.canary.states import Kind, Pass, kinds, read_states
from patchkit.canary.target import target_tensors

TEXT = counting(2307, 5)  # the last digits wrap


@pytest.fixture(scope="module", params=["float32", "bfloat16", "float16"])
def plan(request: pytest.FixtureRequest) -> Plan:
    return make_plan(dtype=request.param)


def handed(plan: Plan, *layers: int, prefill: bool = True, **more: object) -> Pass:
    """Of the simulated target's own states."""
    run = Target(plan, target_tensors(plan), TEXT)
    rows = tuple(
        {
            slot * plan.hidden + channel: value
            for slot, layer in enumerate(layers)
            for channel, value in run.states[layer][position].items()
            if abs(value) > 1e-6
        }
        for position in range(len(TEXT) - 1)
    )
    width = len(layers) * plan.hidden
    one = Pass(0, prefill, width, plan.hidden, True, tuple(TEXT[1:]), rows)
    return replace(one, **more)  # type: ignore[arg-type]


def said(plan: Plan, *passes: Pass) -> str:
    states = read_states(passes, plan, plan.default_layers)
    assert states is not None and not states.right
    text, found = received_text(states, plan, plan.default_layers, with_ids=False)
    return "; ".join([text, *(f"may be {one.what}" for one in found)])


def test_the_simulated_target_s_states_are_right(plan: Plan) -> None:
    one = handed(plan, *plan.default_layers)
    states = read_states([one], plan, plan.default_layers)
    assert states is not None and states.right and not states.partial
    assert all(kinds(slot) == {Kind.RIGHT} for slot in states.slots)
    assert read_states([], plan, plan.default_layers) is None


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((2, 5, 5), "slot 1 receives the state in front of layer 5, one layer late"),
        ((1, 4, 5), "slot 0 receives the state in front of layer 1, one layer early"),
        ((5, 4, 2), "probably slots 0 and 2 are swapped: the order is reversed"),
        (
            (4, 5, 7),
            "slots 0, 1 and 2 receive the states in front of layers 4, 5 and 7",
        ),
        ((2, 4, 8), "slot 2 receives the state behind the last layer, 7"),
        ((2, 4), "768 are 2 of 3 states"),
        ((2,), "fc is skipped without a word"),
    ],
)
def test_layers_are_named(layers: tuple[int, ...], words: str) -> None:
    small = make_plan()
    text = said(small, handed(small, *layers))
    assert words in text, text
    assert layers != (4, 5, 7) or "probably" not in text


def scaled(one: Pass, factor: float) -> Pass:
    rows = tuple({c: x * factor for c, x in row.items()} for row in one.rows)
    return replace(one, rows=rows)


def test_a_factor_is_named(plan: Plan) -> None:
    one = handed(plan, *plan.default_layers)
    for factor in (0.5, 0.1, 3.0, -1.0):
        assert f"multiplied by {factor:g}" in said(plan, scaled(one, factor))


def test_rows_of_other_tokens_are_named_with_the_passes_they_are_in(plan: Plan) -> None:
    right = handed(plan, *plan.default_layers)
    mixed = replace(right, rows=right.rows[::-1])
    assert "of other tokens than those they come with" in said(plan, mixed)
    text = said(plan, mixed, replace(right, prefill=False))
    assert text.startswith("in prefill only, slots 0, 1 and 2") and "embeds" in text
    text = said(plan, right, replace(mixed, prefill=False))
    assert text.startswith("after verify steps only, slots 0, 1 and 2")


def test_one_wrong_entry_is_no_state(plan: Plan) -> None:
    right = handed(plan, *plan.default_layers)
    for change in ({7: 1.0}, {7: float("nan")}, {0: 0.0}):
        first, *others = right.rows
        text = said(plan, replace(right, rows=({**first, **change}, *others)))
        assert text.startswith("slot 0 receives") and "in 1 of 4 rows" in text


# -- what the number alone does not see ---------------------------------------------


@pytest.mark.parametrize(
    ("factor", "guessed"),
    [(0.3, 3), (1.0, 3), (1.2, 3), (0.25, 1), (1.4, 1), (1.8, 0), (4.0, 0)],
)
def test_which_factors_cost_candidates(plan: Plan, factor: float, guessed: int) -> None:
    """As docs/canary.md says of what can't be seen over HTTP."""
    target = target_tensors(plan)
    tensors = draft_tensors(plan, plan.default_layers)
    text = counting(700, 3)
    run = Target(plan, target, text)
    draft = Draft(plan, tensors, target["model.embed_tokens.weight"])
    tokens = [*text[1:], next_token(text[-2], text[-1])]
    for position, token in enumerate(tokens):
        states = [
            {c: factor * x for c, x in run.states[layer][position].items()}
            for layer in plan.default_layers
        ]
        logits, state = draft.step(token, draft.fused(states))
    right = 0
    while right < 3:
        wanted = next_token(tokens[-2], tokens[-1])
        if draft_token(max(logits, key=lambda row: (logits[row], -row))) != wanted:
            break
        right += 1
        tokens.append(wanted)
        logits, state = draft.step(wanted, state)
    assert right == guessed, number_at(tokens[-1])


# -- an engine that ended -----------------------------------------------------------

MISFIT = "RuntimeError: mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x384)"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MISFIT.format(3, 768, 1152), "2 of 3 states reach fc: 768 columns"),
        (MISFIT.format(47, 1536, 1152), "4 of 3 states reach fc"),
        (MISFIT.format(1, 384, 1152), "fc is applied to 384 columns"),
        (MISFIT.format(1, 384, 512), ""),
        ("ValueError: Expected hidden_size to be 384, but found: 1152", "not applied"),
        ("ValueError: no such layer", ""),
    ],
)
def test_what_an_error_shows_of_the_states(error: str, words: str) -> None:
    found = in_words(error, 384)
    assert words in found and bool(words) == bool(found)


def test_where_an_error_was() -> None:
    trace = [
        '  File "/x/sglang/srt/models/a.py", line 9, in forward',
        "    x()",
        '  File "/tmp/overlay/srt/models/b.py", line 7, in forward',
        '  File "/x/site-packages/torch/nn/linear.py", line 1, in forward',
    ]
    assert frames(trace) == (
        *("srt/models/b.py, line 7, in forward", "srt/models/a.py, line 9, in forward"),
    )
