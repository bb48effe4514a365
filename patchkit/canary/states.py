"""The captured states against what they should be, number by number. Pure.

On a CPU the probe sees what the draft is handed. In front of a layer the target's state
is known: constants, and one number's digits in that layer's block. The digits modulo 2,
3, 5 and 7 are those of the token before the one that the draft is given with the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from patchkit.canary.code import (
    BY_MLP,
    CODES,
    MODULI,
    PAD,
    SLOTS,
    STARTS,
    WIDTH,
    digits,
    number_at,
)
from patchkit.canary.plan import CONSTANTS, Plan
from patchkit.canary.target import ONE

#: Far above what a dtype's rounding and other positions leave, relative to 1.
EXACT = 2.0**-18
Entries = Mapping[int, float]


class Kind(Enum):
    RIGHT = "right"
    LAYER = "another layer's"
    SCALED = "scaled"
    ROWS = "another token's"
    ZEROS = "zeros"
    PARTIAL = "a rank's part of the sum"
    RESIDUAL = "the residual alone"
    NO_CONSTANT = "without the constants of a residual stream"
    UNLIKE = "no state of the target's"


@dataclass(frozen=True)
class Found:
    """What a slot of a row holds. ``layer``: in front of which it was captured;
    ``factor``: by which it is multiplied."""

    kind: Kind
    layer: int | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class Pass:
    """One of the draft's, with states of the target's. ``rows``: what is not zero in
    each, by column."""

    rank: int
    prefill: bool
    width: int
    hidden: int
    fc: bool
    tokens: tuple[int, ...]
    rows: tuple[Entries, ...]

    @staticmethod
    def read(value: Mapping[str, Any], rank: int) -> Pass:
        rows = tuple({int(c): float(x) for c, x in row} for row in value["rows"])
        names = ("prefill", "width", "hidden", "fc")
        known = {name: value[name] for name in names}
        return Pass(rank, tokens=tuple(value["tokens"]), rows=rows, **known)


@dataclass(frozen=True)
class States:
    """``slots``: of each slot, how often it held what. ``prefill`` and ``verify``: the
    same, of passes after prefill and after a verify step. ``narrow``: columns that came
    where ``fc`` takes more; ``skipped``: ``fc`` was not called though they fit."""

    slots: tuple[Counter[Found], ...]
    prefill: tuple[Counter[Found], ...]
    verify: tuple[Counter[Found], ...]
    narrow: tuple[int, int] | None = None
    skipped: bool = False

    @property
    def count(self) -> int:
        """How many were compared: a row has one for each slot."""
        return sum(sum(one.values()) for one in self.slots)

    @property
    def right(self) -> bool:
        return self.arrived and not self.skipped

    @property
    def arrived(self) -> bool:
        """Whether they are right as they come; ``fc`` may be applied without a call,
        and then the candidates say so."""
        return self.clean and self.narrow is None

    @property
    def clean(self) -> bool:
        """Whether every row of every slot is what it should be."""
        return all(kinds(one) <= {Kind.RIGHT} for one in self.slots)

    @property
    def partial(self) -> bool:
        """Whether each rank has just its part of each sum: what it is where a state is
        captured before an all-reduce, and nothing else is wrong with it."""
        return all(kinds(one) == {Kind.PARTIAL} for one in self.slots)

    def layers(self) -> tuple[int | None, ...]:
        """In front of which layer each slot's states were captured, if it is one."""
        return tuple(
            next(iter(found)) if len(found) == 1 else None
            for found in ({one.layer for one in each} for each in self.slots)
        )


def kinds(slot: Mapping[Found, int]) -> set[Kind]:
    return {one.kind for one in slot}


def read_states(
    passes: Sequence[Pass], plan: Plan, layers: Sequence[int], tp: int = 1
) -> States | None:
    """``layers``: in front of which they should be captured. None without passes."""
    if not passes:
        return None
    after: dict[bool, list[Counter[Found]]] = {
        prefill: [Counter() for _ in SLOTS] for prefill in (True, False)
    }
    wanted = len(SLOTS) * plan.hidden
    narrow = next(((one.width, wanted) for one in passes if one.width != wanted), None)
    for one in passes:
        if one.width != wanted:
            continue
        for token, row in zip(one.tokens, one.rows):
            for slot, found in enumerate(_slots(row, plan)):
                told = _found(found, plan, layers[slot], token, one.rank, tp)
                after[one.prefill][slot][told] += 1
    both = tuple(a + b for a, b in zip(after[True], after[False]))
    skipped = any(one.width == wanted and not one.fc for one in passes)
    return States(both, tuple(after[True]), tuple(after[False]), narrow, skipped)


def _slots(row: Entries, plan: Plan) -> Iterator[dict[int, float]]:
    for slot in SLOTS:
        first = slot * plan.hidden
        yield {c - first: x for c, x in row.items() if 0 <= c - first < plan.hidden}


def _found(
    state: Entries, plan: Plan, layer: int, token: int, rank: int, tp: int
) -> Found:
    if not state:
        return Found(Kind.ZEROS)
    constants = plan.constants
    fixed = {ONE: float(constants.amplitude)}
    fixed |= {ONE + 1 + n: float(x) for n, x in enumerate(constants.fillers)}
    factor = state.get(ONE, 0.0) / constants.amplitude
    if not factor or factor != factor:
        return Found(Kind.NO_CONSTANT)
    ones = {c: x / factor for c, x in state.items() if c >= CONSTANTS}
    wrong = [
        abs(state.get(c, 0.0) / factor - fixed.get(c, 0.0)) for c in range(CONSTANTS)
    ]
    wrong += [abs(x - 1) for x in ones.values()]
    if not all(one <= EXACT for one in wrong):
        return Found(Kind.UNLIKE)
    held = _digits(ones)
    if held is None:
        return Found(Kind.UNLIKE)
    factor = 1.0 if abs(factor - 1) <= EXACT else float(f"{factor:.6g}")
    blocks = [block for block, _ in held]
    ahead = (number_at(token) - 1) % CODES
    # an overlapping worker pads where candidates were rejected
    same = token == PAD or all(held[d][1] == digits(ahead)[d] for d in BY_MLP)
    if len(set(blocks)) > 1:
        own = [d * tp // len(BY_MLP) == rank for d in BY_MLP]
        parted = [layer if mine else layer - 1 for mine in own] + [layer]
        if factor != 1 or not same:
            return Found(Kind.UNLIKE)
        if tp > 1 and blocks == parted:
            return Found(Kind.PARTIAL)
        alone = blocks == [*[layer - 1] * len(BY_MLP), layer]
        return Found(Kind.RESIDUAL if alone else Kind.UNLIKE)
    if factor != 1:
        return Found(Kind.SCALED, blocks[0], factor)
    if blocks[0] != layer:
        return Found(Kind.LAYER, blocks[0])
    return Found(Kind.RIGHT if same else Kind.ROWS, layer)


def _digits(ones: Entries) -> list[tuple[int, int]] | None:
    """Block and residue of each digit; None unless there is just one of each."""
    found: dict[int, tuple[int, int]] = {}
    for channel in ones:
        block, place = divmod(channel - CONSTANTS, WIDTH)
        digit = max(d for d, start in enumerate(STARTS) if start <= place)
        if digit in found:
            return None
        found[digit] = block, place - STARTS[digit]
    return [found[d] for d in range(len(MODULI))] if len(found) == len(MODULI) else None
