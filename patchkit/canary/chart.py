"""Which digits a draft guesses right, one by one. Pure.

From the candidates of verify steps, where they can be had; over HTTP, by questions. A
question is a text that counts up to just before a certain number: is it guessed? First
*keys*, one for everything that lost digits may be taken for: a draft that only lost
digits guesses one of these at least. Then, from such a number, each digit by itself
with each of its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product

from patchkit.canary.code import (
    EARLY,
    LATE,
    MODULI,
    SLOTS,
    counting,
    digits,
    means_number,
    number_at,
    number_of,
)

#: Tokens to ask for: if the first candidate is right, one verify step makes them.
TOKENS = 3
#: Length of a question.
LENGTH = 4
_SLOTTED = tuple(MODULI[slot] for slot in SLOTS)


class State(Enum):
    RIGHT = "right"
    LOST = "lost"  # always taken for one value
    SHIFTED = "shifted"  # always off by the same
    WRONG = "wrong"  # never right, not always off by the same
    PARTLY = "partly"  # some residues right, others not
    UNKNOWN = "unknown"


@dataclass
class Guesses:
    """Of one digit. ``offsets``: guess minus right, where guesses are known."""

    right: set[int] = field(default_factory=set)
    wrong: set[int] = field(default_factory=set)
    offsets: set[int] = field(default_factory=set)

    @property
    def state(self) -> State:
        if not self.right and not self.wrong:
            return State.UNKNOWN
        if not self.wrong:
            return State.RIGHT
        if not self.right:
            known = len(self.offsets) == 1
            return State.SHIFTED if known else State.WRONG
        if len(self.right) == 1 and not self.right & self.wrong:
            return State.LOST
        return State.PARTLY


@dataclass(frozen=True)
class Chart:
    """``digits``: one for each modulus. ``foreign``: candidates that stand for no
    number at all."""

    digits: tuple[Guesses, ...]
    foreign: int = 0

    def states(self) -> tuple[State, ...]:
        return tuple(one.state for one in self.digits)

    def hopeless(self) -> bool:
        """Whether a digit is never right, so that no candidate is."""
        return bool({State.WRONG, State.SHIFTED, State.UNKNOWN} & set(self.states()))

    def lost(self) -> dict[int, int] | None:
        """The lost digits and what they are taken for, if the others are right; else
        None."""
        if not set(self.states()) <= {State.RIGHT, State.LOST}:
            return None
        return {
            digit: min(one.right)
            for digit, one in enumerate(self.digits)
            if one.state is State.LOST
        }


def keys() -> Iterator[tuple[int, ...]]:
    """Digits of numbers, one of which every draft guesses that only lost digits."""
    for values in product(*(sorted({*range(m)} & {0, LATE, EARLY}) for m in _SLOTTED)):
        yield (*values, *[0] * (len(MODULI) - len(values)))


def questions(key: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
    """Digit, value and the digits of the number that has it, ``key``'s otherwise."""
    for digit, modulus in enumerate(MODULI):
        for value in range(modulus):
            wanted = list(key)
            wanted[digit] = value
            yield digit, value, wanted


def prompt_for(wanted: Sequence[int]) -> list[int]:
    """The question whether the number with these digits is guessed: it is the second
    token after the prompt, as the first comes from prefill."""
    return counting(number_of(wanted) - LENGTH - 1, LENGTH)


def chart_of_answers(answers: Mapping[tuple[int, int], bool]) -> Chart:
    """``answers``: by digit and value, whether the candidate was accepted; none if no
    key was."""
    found = tuple(Guesses() for _ in MODULI)
    for (digit, residue), accepted in answers.items():
        guesses = found[digit]
        (guesses.right if accepted else guesses.wrong).add(residue)
    return Chart(found)


def chart_of_candidates(pairs: Iterable[tuple[int, int]]) -> Chart:
    """``pairs``: the first candidate of a verify step, and the target's own token
    there."""
    found = tuple(Guesses() for _ in MODULI)
    foreign = 0
    for guess, right in pairs:
        if not means_number(guess):
            foreign += 1
            continue
        for one, has, wants, modulus in zip(
            found, digits(number_at(guess)), digits(number_at(right)), MODULI
        ):
            (one.right if has == wants else one.wrong).add(wants)
            one.offsets.add((has - wants) % modulus)
    return Chart(found, foreign)
