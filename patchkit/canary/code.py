"""The tokens: numbers that are known by their residues. Pure.

Number k, 0 <= k < 2310, is five digits: its residues modulo 2, 3, 5, 7 and 11 (which
determine it, by the Chinese remainder theorem). In a hidden state it is a *block*: 28
channels, one for each value of each digit, five of them 1 and the rest 0.

The target continues any text by one rule: the next token's first four digits are the
last token's plus one, its digit modulo 11 is that of the token *before* the last plus
two. A text that counts goes on counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

MODULI = (2, 3, 5, 7, 11)
#: How many numbers there are.
CODES = 2310
#: Channels of a block, and where in it each digit begins.
WIDTH = 28
STARTS = (0, 2, 5, 10, 17)
#: Digits that the draft reads from captured state 0, 1 and 2.
SLOTS = (0, 1, 2)
#: The digit that it reads from its own embedding, by attention to the same position.
OWN = 3
#: The digit that attention brings from the position before, in target and draft.
BEFORE = 4
#: Digits that the target's MLPs carry; its attention carries ``BEFORE``.
BY_MLP = (0, 1, 2, 3)

#: What the draft takes a digit for that it does not have: 0, or where slot j's state is
#: that of the next layer or of the one before, these.
LATE, EARLY = 1, 2

VOCAB = 4672
DRAFT_VOCAB = 2368
PAD, EOS = 0, 1


@cache
def digits(number: int) -> tuple[int, ...]:
    """The residues of ``number``."""
    return tuple(number % modulus for modulus in MODULI)


@cache
def channels(number: int) -> tuple[int, ...]:
    """The five channels of a block that are 1 for ``number``."""
    return tuple(s + number % m for s, m in zip(STARTS, MODULI))


#: 1 modulo one of the moduli and 0 modulo all others.
_UNITS = tuple(CODES // m * pow(CODES // m, -1, m) for m in MODULI)


def number_of(residues: Sequence[int]) -> int:
    """The number with these digits."""
    return sum(one * unit for one, unit in zip(residues, _UNITS)) % CODES


def token_of(number: int) -> int:
    """The token that stands for ``number``: every other one, so that the draft's map
    ``d2t`` is not the identity."""
    return 2 * (number % CODES) + 3


def draft_token(row: int) -> int:
    """The token that a row of the draft's head stands for: behind the numbers, which
    are no multiple of 64, come tokens that stand for none."""
    return token_of(row) if row < CODES else 2 * (row - CODES) + 2


def means_number(token: int) -> bool:
    return token >= 3 and token % 2 == 1 and (token - 3) // 2 < CODES


def number_at(token: int) -> int:
    """What the target's embedding makes of any token; those that stand for no number
    are given one, so that every text has a continuation."""
    return (token - 3) // 2 if means_number(token) else token * 11 % CODES


def next_token(before: int, last: int) -> int:
    """The target's continuation of a text that ends with these two tokens."""
    wanted = [(number_at(last) + 1) % modulus for modulus in MODULI]
    wanted[BEFORE] = (number_at(before) + 2) % MODULI[BEFORE]
    return token_of(number_of(wanted))


def continuation(prompt: Sequence[int], count: int) -> list[int]:
    """The ``count`` tokens that the target generates after ``prompt``, greedily.

    At position 0 there is no token before, and attention falls on the token itself.
    """
    text = list(prompt)
    while len(text) < len(prompt) + count:
        text.append(next_token(text[-2] if len(text) > 1 else text[-1], text[-1]))
    return text[len(prompt) :]


def counting(first: int, length: int) -> list[int]:
    """A prompt: the tokens of ``length`` numbers from ``first`` on."""
    return [token_of(first + step) for step in range(length)]
