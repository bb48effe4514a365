"""The closed form: what a draft that has lost some digits accepts. Pure.

A lost digit is taken to be 0 (1 or 2 where the state is of the next layer or of the one
before). So a candidate is right if and only if every lost digit of the right token is
that; for a text that counts that is one token in P, the product of the lost moduli
(Chinese remainder theorem). Between two such tokens P - 1 guesses fail
and each costs a step, whatever the number of draft steps is, as long as it is 1 or
more: P tokens come in P - 1 steps, P / (P - 1) a step. Nothing lost: steps + 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, product

from patchkit.canary.code import (
    EARLY,
    LATE,
    MODULI,
    SLOTS,
    continuation,
    digits,
    number_at,
)

#: Digits, taken to be 0; or digit -> what it is taken for.
Lost = Collection[int] | Mapping[int, int]


def mean_accept_length(lost: Lost, steps: int) -> float:
    """Tokens per verify step in a long text that counts, the target's own included.
    ``lost``: indices of digits."""
    if not lost:
        return steps + 1.0
    product = 1
    for digit in lost:
        product *= MODULI[digit]
    return product / (product - 1)


def accept_sequence(
    prompt: Sequence[int],
    tokens: int,
    steps: int,
    lost: Lost = (),
    first: Lost | None = None,
) -> list[int]:
    """Candidates accepted in each verify step, while ``tokens`` are generated.
    ``first``: what the first step, of prefill's states, loses, if not the same.

    The first token comes from prefill; a step gives its accepted candidates and one
    token of the target's own. The last step may go beyond ``tokens``.
    """
    text = _continuation(tuple(prompt), tokens + 2 * steps + 2)
    taken = taken_for(lost if first is None else first)
    found: list[int] = []
    at = 0
    while at + 1 < tokens:
        if found:
            taken = taken_for(lost)
        accepted = 0
        while accepted < steps and right(text[at + 1 + accepted], taken):
            accepted += 1
        found.append(accepted)
        at += accepted + 1
    return found


def taken_for(lost: Lost) -> Mapping[int, int]:
    """Digit -> the value that the draft takes it for."""
    return lost if isinstance(lost, Mapping) else dict.fromkeys(lost, 0)


def right(token: int, taken: Mapping[int, int]) -> bool:
    """Whether a draft that takes these digits for these values guesses this token."""
    residues = digits(number_at(token))
    return all(residues[digit] == value for digit, value in taken.items())


@lru_cache
def _continuation(prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    return tuple(continuation(prompt, count))


def histogram(accepted: Sequence[int], steps: int) -> list[int]:
    """How many steps accepted 0, 1, ... ``steps`` candidates."""
    return [accepted.count(count) for count in range(steps + 1)]


def losses() -> Iterator[dict[int, int]]:
    """Every way to lose digits; fewest and plainest first."""
    for size in range(len(MODULI) + 1):
        for chosen in combinations(range(len(MODULI)), size):
            values = [
                sorted({0, *((LATE, EARLY) if digit in SLOTS else ())} & {*range(m)})
                for digit, m in ((one, MODULI[one]) for one in chosen)
            ]
            for taken in product(*values):
                yield dict(zip(chosen, taken))
