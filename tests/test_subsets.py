"""Random sets of recipes, applied and taken away in random order, on four releases."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import composing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.errors import Refused

RELEASES = ("0.4.9", "0.5.5", "0.5.15", "0.5.23")


@pytest.fixture(autouse=True, scope="module")
def remembered():
    original = composing.engine.apply
    composing.remember_engine()
    yield
    composing.engine.apply = original


@pytest.mark.parametrize("release", RELEASES)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32))
def test_any_order_and_any_subset(release, seed):
    """What stands in the end decides, not how it came about; nothing: the original."""
    chance = random.Random(seed)
    names = list(composing.recipes())
    with tempfile.TemporaryDirectory() as folder:
        tree = composing.Tree(release, Path(folder, "tree"))
        before = tree.files()
        for _ in range(chance.randint(2, 6)):
            some = chance.sample(names, chance.randint(1, 4))
            if chance.random() < 0.4:
                tree.revert(some)
                continue
            wanted = {*some, *tree.applied()}
            if any(composing.exclude_each_other(a, b) for a in wanted for b in wanted):
                files = tree.files()
                with pytest.raises(Refused, match="exclude each other"):
                    tree.apply(some)
                assert tree.files() == files
            else:
                tree.apply(some)
        left = sorted(tree.applied(), key=lambda _: chance.random())
        again = composing.Tree(release, Path(folder, "again"))
        again.apply_in_turn(left)
        assert again.files() == tree.files()
        tree.revert(left) if chance.random() < 0.5 else tree.revert([])
        assert tree.files() == before
