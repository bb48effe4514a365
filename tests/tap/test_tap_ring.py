"""The ring's protocol: whole, torn, old and missing records, laps and wrap-around."""

from __future__ import annotations

import importlib
import random
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

settings.register_profile("ring", suppress_health_check=[HealthCheck.too_slow])
QUIET = settings.get_profile("ring")

ring = importlib.import_module("patchkit.tap.ring")


def record(number, **changes):
    """The record with sequence number ``number``, told apart by every field."""
    base = ring.Record(
        call=number % (1 << 24),
        segment=number % 8,
        step=number // 3,
        rows=5,
        total=8,
        norm=float(number % 1000) + 0.5,
        absmax=float(number % 77),
        share=-float(number % 13),
        nonfinite=number % 2,
        least=0.25,
        greatest=float(number % 500),
        ticks=number * 7 % (1 << 32),
        sequence=number,
    )
    return replace(base, **changes)


class Memory:
    """A ring's memory and its writer, which may stop at any word."""

    def __init__(self, capacity):
        self.bytes = bytearray(capacity * ring.RECORD_BYTES)
        self.capacity = capacity

    def put(self, number, words=None):
        """Record ``number``, or only the words with these indices."""
        at = (number - 1) % self.capacity * ring.RECORD_BYTES
        data = ring.encode(record(number))
        for word in range(ring.WORDS) if words is None else words:
            part = slice(4 * word, 4 * word + 4)
            self.bytes[at + 4 * word : at + 4 * word + 4] = data[part]


def make(capacity=8):
    memory = Memory(capacity)
    return memory, ring.Ring(memoryview(memory.bytes), capacity)


def numbers(reader, limit=1000):
    return [one.sequence for one in reader.read(limit)]


def test_a_record_survives_the_way():
    memory, reader = make()
    memory.put(1)
    assert list(reader.read(9)) == [record(1)]
    assert list(reader.read(9)) == []
    assert (reader.lost, reader.torn) == (0, 0)


def test_limit():
    memory, reader = make()
    for number in (1, 2, 3):
        memory.put(number)
    assert numbers(reader, 2) == [1, 2]
    assert numbers(reader, 2) == [3]


@QUIET
@given(st.sets(st.integers(0, 15)), st.integers(1, 30))
def test_half_a_record_is_never_taken(words, number):
    """Whatever part of it has arrived, over an older record or over nothing."""
    memory, reader = make(4)
    for earlier in range(1, number):
        memory.put(earlier)
        assert numbers(reader) == [earlier]
    memory.put(number, words)
    whole = numbers(reader)
    # A part whose missing words are as they were before makes a whole record.
    at = (number - 1) % 4 * ring.RECORD_BYTES
    there = bytes(memory.bytes[at : at + ring.RECORD_BYTES])
    assert whole == ([number] if there == ring.encode(record(number)) else [])
    memory.put(number)
    assert whole + numbers(reader) == [number]
    assert reader.lost == 0


@QUIET
@given(st.integers(0, 14), st.integers(1, 0xFFFFFFFF))
def test_a_flipped_word_is_noticed(word, change):
    memory, reader = make()
    memory.put(1)
    at = 4 * word
    value = int.from_bytes(memory.bytes[at : at + 4], "little") ^ change
    memory.bytes[at : at + 4] = value.to_bytes(4, "little")
    assert numbers(reader) == []


@QUIET
@given(st.permutations(range(16)))
def test_words_in_any_order(order):
    memory, reader = make()
    for word in order[:-1]:
        memory.put(1, [word])
        before = numbers(reader)
        assert before in ([], [1])
        if before:
            # The words to come are equal to what was there: zero.
            return
    memory.put(1, order[-1:])
    assert numbers(reader) == [1]


@QUIET
@given(
    st.integers(0, 5).map(lambda power: 1 << power),
    st.lists(st.one_of(st.just("read"), st.integers(1, 40)), max_size=40),
)
def test_nothing_is_lost_unsaid_or_said_twice(capacity, story):
    """Writing and reading in any rhythm: delivered + lost = written, in order."""
    memory, reader = make(capacity)
    written = 0
    got = []
    for event in story:
        if event == "read":
            got += numbers(reader)
        else:
            for _ in range(event):
                written += 1
                memory.put(written)
    got += numbers(reader)
    assert got == sorted(set(got))
    assert len(got) + reader.lost == written
    if (
        all(event == "read" or event <= capacity for event in story)
        and len([e for e in story if e != "read"]) <= 1
    ):
        assert reader.lost == 0
    if written:
        assert got[-1] == written


def test_lapped_goes_on_half_a_ring_behind():
    memory, reader = make(8)
    for number in range(1, 101):
        memory.put(number)
    assert numbers(reader) == list(range(93, 101))
    assert reader.lost == 92


def test_records_that_finish_out_of_order_are_read_in_order():
    memory, reader = make()
    memory.put(2)
    memory.put(3)
    assert numbers(reader) == []
    memory.put(1)
    assert numbers(reader) == [1, 2, 3]


def test_sequence_numbers_wrap():
    memory, reader = make(8)
    start = (1 << 32) - 4
    reader._next = start
    seen = []
    for number in range(start + 1, start + 9):
        at = (number - 1) % 8 * ring.RECORD_BYTES
        data = ring.encode(record(5, sequence=number))
        memory.bytes[at : at + ring.RECORD_BYTES] = data
        # 0 in the ring's memory means that nothing was written yet.
        seen += numbers(reader)
    assert seen == list(range(start + 1, start + 9))
    assert reader.lost == 0


def test_a_hole_is_skipped_when_asked():
    memory, reader = make(8)
    for number in (1, 2, 5, 6):
        memory.put(number)
    assert numbers(reader) == [1, 2]
    assert reader.skip_hole()
    assert numbers(reader) == [5, 6]
    assert reader.lost == 2
    assert not reader.skip_hole()


def test_garbage_is_never_a_record():
    generator = random.Random(1)
    memory, reader = make(64)
    for _ in range(50):
        memory.bytes[:] = generator.randbytes(len(memory.bytes))
        assert numbers(reader) == []


def test_checksum_notices_words_that_changed_places():
    words = tuple(range(100, 116))
    for i in range(16):
        for j in range(i):
            swapped = list(words)
            swapped[i], swapped[j] = swapped[j], swapped[i]
            both = {i, j}
            if not both & {7, 11, 14, 15}:
                assert ring.checksum(tuple(swapped)) != ring.checksum(words), both
