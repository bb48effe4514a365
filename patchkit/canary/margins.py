"""Proof that a dtype's arithmetic holds the pair: by how much right answers win. Pure.

Forward passes are simulated (``simulate``) for a text that counts, by the target, by
the draft, and by the draft with each captured state taken from the wrong layer. Apart
from that, the attention of long texts: by how much the wanted position wins against any
other that RoPE can make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import cos, exp, frexp

from patchkit.canary import code
from patchkit.canary.code import SLOTS
from patchkit.canary.draft import LOOKS as DRAFT_LOOKS
from patchkit.canary.draft import STRICT, TOLERANT
from patchkit.canary.faults import taken_for
from patchkit.canary.parts import LENGTH, frequencies
from patchkit.canary.plan import DRAFT_HEAD, ROPE, Plan
from patchkit.canary.simulate import DRAFT_BY, TARGET_BY, Draft, Target
from patchkit.canary.target import LOOKS, MAX_POSITIONS
from patchkit.canary.tensors import Tensor
from patchkit.errors import Refused

#: Significant bits of a number.
BITS = {"float32": 24, "bfloat16": 8, "float16": 11}
#: Least margin, in steps of the dtype at the right answer's logit.
LEAST_STEPS = 3.0
#: Least advantage of the wanted position, in nats.
LEAST_NATS = 12.0
_TEXT = code.counting(2307, 3)  # the answer is number 0, the last digits wrap


@dataclass(frozen=True)
class Margin:
    """``right`` and ``wrong``: logits of the right answer and of the best other.
    ``spacing``: of the dtype's numbers at ``right``."""

    what: str
    right: float
    wrong: float
    spacing: float

    @property
    def steps(self) -> float:
        return (self.right - self.wrong) / self.spacing


@dataclass(frozen=True)
class Attention:
    """``nats``: by which the wanted position's score is above any other's, of texts up
    to the longest. ``others``: the share of attention that all others can have."""

    what: str
    nats: float
    others: float


@dataclass(frozen=True)
class Proof:
    logits: tuple[Margin, ...]
    attention: tuple[Attention, ...]


def prove(
    plan: Plan, target: Mapping[str, Tensor], draft: Mapping[str, Tensor]
) -> Proof:
    """``draft``: the one for ``plan.default_layers``. Raises Refused where an answer
    is wrong or its margin small, which would be a bug of ours or a size that nobody
    tried."""
    run = Target(plan, target, _TEXT)
    last = len(_TEXT) - 1
    answer = code.next_token(_TEXT[-2], _TEXT[-1])
    margins = [_margin("target", plan, run.logits(last), answer)]
    layers = plan.default_layers
    margins.append(_draft_margin("draft", plan, draft, run, layers, answer, {}))
    for slot in SLOTS:
        wrong = list(layers)
        wrong[slot] += 1
        taken = {slot: taken_for(slot, 1)}
        what = f"draft, slot {slot} a layer late"
        margins.append(_draft_margin(what, plan, draft, run, wrong, answer, taken))
    early = [layer - 1 for layer in layers]
    taken = {slot: taken_for(slot, -1) for slot in SLOTS}
    what = "draft, all a layer early"
    margins.append(_draft_margin(what, plan, draft, run, early, answer, taken))
    far = [0, 0, 0]
    taken = dict.fromkeys(SLOTS, 0)
    what = "draft, all states the embedding"
    margins.append(_draft_margin(what, plan, draft, run, far, answer, taken))
    proof = Proof(tuple(margins), _attention())
    _expect_room(plan, proof)
    return proof


def _draft_margin(
    what: str,
    plan: Plan,
    tensors: Mapping[str, Tensor],
    run: Target,
    layers: Sequence[int],
    answer: int,
    lost: Mapping[int, int],
) -> Margin:
    """Of the third draft step's guess, if it is the one that the closed form says;
    with lost digits, of the first's."""
    draft = Draft(plan, tensors, run.tensors["model.embed_tokens.weight"])
    texts = [*_TEXT[1:], answer]
    for position, token in enumerate(texts):
        states = [run.states[layer][position] for layer in layers]
        logits, state = draft.step(token, draft.fused(states))
    for _ in range(2 if not lost else 0):
        texts.append(code.next_token(texts[-2], texts[-1]))
        logits, state = draft.step(texts[-1], state)
    wanted = list(code.digits(code.number_at(code.next_token(texts[-2], texts[-1]))))
    for digit, value in lost.items():
        wanted[digit] = value
    return _margin(what, plan, logits, code.number_of(wanted))


def _margin(what: str, plan: Plan, logits: Mapping[int, float], right: int) -> Margin:
    won = logits.get(right, 0.0)
    best = max(value for row, value in logits.items() if row != right)
    return Margin(what, won, best, 2.0 ** (frexp(won)[1] - BITS[plan.dtype]))


def _attention() -> tuple[Attention, ...]:
    target = (frequencies(ROPE, LOOKS), TARGET_BY)
    draft = (frequencies(DRAFT_HEAD, DRAFT_LOOKS), DRAFT_BY)
    return (
        _looked("target, position before", *target, 1, 1),
        _looked("draft, position before", *draft, 1, TOLERANT),
        _looked("draft-positions, position before", *draft, 1, STRICT),
        _looked("draft, own position", *draft, 0, 0),
    )


def _looked(
    what: str, turns: Sequence[float], by: float, wanted: int, liked: float
) -> Attention:
    scores = [0.0] * MAX_POSITIONS
    for one in turns:
        turned = [cos((distance - liked) * one) for distance in range(MAX_POSITIONS)]
        scores = [score + more for score, more in zip(scores, turned)]
    best, strength = scores.pop(wanted), by * LENGTH**2
    behind = [strength * (best - score) for score in scores]
    return Attention(what, min(behind), sum(exp(-one) for one in behind))


def _expect_room(plan: Plan, proof: Proof) -> None:
    for one in proof.logits:
        if one.steps < LEAST_STEPS:
            raise Refused(
                f"{plan.dtype} can't hold this pair: {one.what}: the right answer has"
                f" logit {one.right:g}, another {one.wrong:g}",
                hint="give another --hidden or --dtype; nothing was written",
            )
    for looked in proof.attention:
        if looked.nats < LEAST_NATS or looked.others > 2.0 ** -BITS[plan.dtype] / 2:
            raise Refused(
                f"{plan.dtype} can't hold this pair: {looked.what} wins by only"
                f" {looked.nats:.1f} nats",
                hint="give another --dtype; nothing was written",
            )
