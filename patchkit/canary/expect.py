"""The closed form: what a draft that has lost some digits accepts. Pure.

A lost digit is taken to be 0. So a candidate is right if and only if every lost digit
of the right token is 0; for a text that counts that is one token in P, the product of
the lost moduli (Chinese remainder theorem). Between two such tokens P - 1 guesses fail
and each costs a step, whatever the number of draft steps is, as long as it is 1 or
more: P tokens come in P - 1 steps, P / (P - 1) a step. Nothing lost: steps + 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

from patchkit.canary.code import MODULI, continuation, digits, number_at


def mean_accept_length(lost: Collection[int], steps: int) -> float:
    """Tokens per verify step in a long text that counts, the target's own included.
    ``lost``: indices of digits."""
    if not lost:
        return steps + 1.0
    product = 1
    for digit in lost:
        product *= MODULI[digit]
    return product / (product - 1)


def accept_sequence(
    prompt: Sequence[int], tokens: int, steps: int, lost: Collection[int] = ()
) -> list[int]:
    """Candidates accepted in each verify step, while ``tokens`` are generated.

    The first token comes from prefill; a step gives its accepted candidates and one
    token of the target's own. The last step may go beyond ``tokens``.
    """
    text = continuation(prompt, tokens + 2 * steps + 2)
    found = []
    at = 0
    while at + 1 < tokens:
        accepted = 0
        while accepted < steps and right(text[at + 1 + accepted], lost):
            accepted += 1
        found.append(accepted)
        at += accepted + 1
    return found


def right(token: int, lost: Collection[int]) -> bool:
    """Whether a draft that has ``lost`` these digits guesses this token."""
    residues = digits(number_at(token))
    return all(residues[digit] == 0 for digit in lost)


def histogram(accepted: Sequence[int], steps: int) -> list[int]:
    """How many steps accepted 0, 1, ... ``steps`` candidates."""
    return [accepted.count(count) for count in range(steps + 1)]


def sets_of_digits() -> Iterator[tuple[int, ...]]:
    """Every set of lost digits, small ones first."""
    for size in range(len(MODULI) + 1):
        yield from combinations(range(len(MODULI)), size)
