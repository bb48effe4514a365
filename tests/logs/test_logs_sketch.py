"""Percentiles: exact at first, then within the stated error."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.logs.sketch import BUCKETS, ERROR, EXACT, Sketch


def filled(values) -> Sketch:
    sketch = Sketch()
    for one in values:
        sketch.add(one)
        if sketch.full:
            sketch.settle()
    return sketch


def exact(values, percent: float) -> float:
    return sorted(values)[round(percent / 100 * (len(values) - 1))]


_VALUE = st.one_of(st.just(0.0), st.floats(1e-12, 1e12))


@given(st.lists(_VALUE, min_size=1, max_size=EXACT), st.floats(0, 100))
@settings(deadline=None)
def test_few_values_are_exact(values, percent):
    assert filled(values).percentile(percent) == exact(values, percent)


@given(
    st.lists(_VALUE, min_size=1, max_size=40), st.floats(0, 100), st.integers(20, 60)
)
@settings(deadline=None, max_examples=200)
def test_many_values_are_within_the_stated_error(values, percent, times):
    many = [one * (1 + i / 7) for i in range(times) for one in values]
    sketch = filled(many)
    assert sketch.count == len(many)
    assert (sketch.least, sketch.greatest) == (min(many), max(many))
    want = exact(many, percent)
    assert math.isclose(sketch.percentile(percent), want, rel_tol=ERROR * 1.0001)


def test_memory_is_bounded():
    sketch = filled(math.exp(i / 50) for i in range(-30_000, 30_000))
    assert len(sketch._buckets) <= BUCKETS and len(sketch._values) <= EXACT
    assert sketch.count == 60_000
    # the lowest were joined; the highest are as good as ever
    assert math.isclose(sketch.percentile(99), math.exp(29_399 / 50), rel_tol=0.03)


def test_nothing():
    assert Sketch().percentile(50) is None
