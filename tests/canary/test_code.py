"""Numbers, digits and the rule by which texts go on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from patchkit.canary.code import (
    BEFORE,
    CODES,
    MODULI,
    VOCAB,
    channels,
    continuation,
    counting,
    digits,
    means_number,
    number_at,
    number_of,
    token_of,
)


def test_digits_determine_the_number():
    assert len({digits(number) for number in range(CODES)}) == CODES
    assert all(number_of(digits(number)) == number for number in range(CODES))


def test_each_number_has_its_channels():
    assert len({channels(number) for number in range(CODES)}) == CODES
    assert all(len(set(channels(number))) == len(MODULI) for number in range(CODES))


def test_tokens_and_numbers():
    assert all(number_at(token_of(number)) == number for number in range(CODES))
    assert sum(map(means_number, range(VOCAB))) == CODES
    assert all(0 <= number_at(token) < CODES for token in range(VOCAB))


@given(st.integers(0, CODES - 1), st.integers(2, 9))
def test_what_counts_goes_on_counting(first, length):
    prompt = counting(first, length)
    assert continuation(prompt, 30) == counting(first + length, 30)


@given(st.lists(st.integers(0, VOCAB - 1), min_size=2, max_size=4))
def test_any_text_goes_on_by_its_last_two_tokens(prompt):
    text = prompt + continuation(prompt, 8)
    for before, last, after in zip(text[-9:], text[-8:], text[-7:]):
        for digit, modulus in enumerate(MODULI):
            has = number_at(after) % modulus
            if digit == BEFORE:
                assert has == (number_at(before) + 2) % modulus
            else:
                assert has == (number_at(last) + 1) % modulus
