"""The closed form against what it is the closed form of."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest

from patchkit.canary.code import CODES, MODULI, counting, digits
from patchkit.canary.expect import (
    accept_sequence,
    histogram,
    losses,
    mean_accept_length,
    right,
    taken_for,
)


def test_nothing_lost():
    assert accept_sequence(counting(5, 3), 13, 3) == [3, 3, 3]
    assert accept_sequence(counting(5, 3), 13, 5) == [5, 5]
    assert mean_accept_length((), 3) == 4


@pytest.mark.parametrize("steps", [1, 3])
def test_the_mean_over_a_full_period(steps):
    """As many tokens as there are numbers, and back where it began."""
    for lost in losses():
        if not lost:
            continue
        number, found = 1, 0
        while number < CODES + 1:  # verify steps of one round, walked by hand
            taken = 0
            while taken < steps and all(
                digits(number + taken)[digit] == value for digit, value in lost.items()
            ):
                taken += 1
            number += taken + 1
            found += 1
        product = prod(MODULI[digit] for digit in lost)
        mean = mean_accept_length(lost, steps)
        assert mean == product / (product - 1)
        assert abs((number - 1) / found - mean) < 1e-2 * mean


def test_at_most_one_candidate_is_accepted_when_a_digit_is_lost():
    for lost in losses():
        if lost:
            accepted = accept_sequence(counting(2300, 4), 200, 3, lost)
            assert max(accepted) <= 1
            assert all(one + two <= 1 for one, two in pairwise(accepted)) or lost in (
                {0: 0},
                {0: 1},
            )


def test_a_set_of_digits_is_taken_to_be_zero():
    assert taken_for((1, 3)) == {1: 0, 3: 0}
    assert accept_sequence(counting(0, 3), 40, 3, [2]) == accept_sequence(
        counting(0, 3), 40, 3, {2: 0}
    )


def test_every_way_to_lose_digits_is_listed_once():
    found = [tuple(sorted(one.items())) for one in losses()]
    assert len(found) == len(set(found)) == 3 * 4 * 4 * 2 * 2
    assert found[0] == ()


def test_right_and_histogram():
    (token,) = counting(30, 1)
    assert right(token, {0: 0, 1: 0, 2: 0}) and not right(token, {3: 0})
    assert histogram([0, 3, 3, 1], 3) == [1, 1, 0, 2]
