"""Which digits a draft guesses right, one by one. Pure.

From the candidates of verify steps, where they can be had; over HTTP, by questions.
A question is a text that counts up to just before a number which is 0 modulo all
moduli but one. A draft that knows that digit gets it right, one that lost it says 0;
the others it gets right either way. Every digit and residue has a question of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from patchkit.canary.code import (
    MODULI,
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


def questions() -> Iterator[tuple[int, int, list[int]]]:
    """Digit, residue and prompt. The candidate in question is the second token after
    the prompt: the first comes from prefill."""
    for digit, modulus in enumerate(MODULI):
        for residue in range(modulus):
            wanted = [0] * len(MODULI)
            wanted[digit] = residue
            number = number_of(wanted)
            yield digit, residue, counting(number - LENGTH - 1, LENGTH)


def chart_of_answers(answers: Mapping[tuple[int, int], bool]) -> Chart:
    """``answers``: by digit and residue, whether the candidate was accepted."""
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
