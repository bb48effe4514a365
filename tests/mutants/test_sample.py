"""The mutants apply, and a sample of them is caught; `make mutants` runs all."""

from __future__ import annotations

import ast
import os
import sys
from collections import Counter

import pytest
from in_target import MUTANTS as IN_TARGET
from mutation import DRAFT, LOGITS, TARGET, Mutant, mutant, span
from scoring import MUTANTS, RELEASES, Outcome, Tree, score

from patchkit.verify.interpreter import has_torch

PYTHON = os.environ.get("PATCHKIT_PROBE_PYTHON", sys.executable)
FEWEST = 20
#: One of each kind; of a release that captures in the layer and not in the loop.
SAMPLE = {
    "deepseek_v2.py: captured after a norm",
    "deepseek_v2.py: plus one for all ids",
    "llama_eagle3.py: fc of shifted rows",
    "llama_eagle3.py: states of the next step scaled",
    "logits_processor.py: interleaved",
    "logits_processor.py: log-probabilities: states shifted",
    "sites.py: steps stand still",
    "emit.py: shape turned round",
    "__init__.py: tap package speaks when imported",
}


Variants = dict[str, dict[str, bytes]]


@pytest.fixture(scope="module", params=RELEASES)
def applied(request: pytest.FixtureRequest) -> Variants:
    return Tree(request.param).variants(MUTANTS)


def test_names_are_unique() -> None:
    twice = [
        key for key, count in Counter(one.key for one in MUTANTS).items() if count > 1
    ]
    assert not twice


def test_enough_of_them_apply(applied: Variants) -> None:
    for path in (TARGET, DRAFT, LOGITS):
        assert sum(one.path == path for one in MUTANTS if one.key in applied) >= FEWEST
    stale = [one.key for one in MUTANTS if not one.since and one.key not in applied]
    assert len(stale) <= 6, stale


@pytest.mark.parametrize("applied", [RELEASES[-1]], indirect=True)
def test_they_parse(applied: Variants) -> None:
    """Else any mutant would be caught, by `import`, and prove nothing."""
    for one in MUTANTS:
        if one.key in applied and one.name != "does not parse":
            ast.parse(applied[one.key][one.path])


FILES = {
    TARGET: b"class A:\n    def f(self):\n        x = 1\n\n\ndef f():\n    x = 1\n"
}


def made(*edits: tuple[str, str, str], since: str = "") -> Mutant:
    return mutant("m", TARGET, "capture", *edits, since=since)


def test_an_edit_must_match_once_in_its_scope() -> None:
    assert made(("", "x = 1", "x = 2")).apply(FILES, "0.5.9") is None
    changed = made(("A.f", "x = 1", "x = 2")).apply(FILES, "0.5.9")
    assert changed == FILES[TARGET].replace(b"1", b"2", 1)
    assert made(("A.g", "x = 1", "x = 2")).apply(FILES, "0.5.9") is None
    assert made(("A.f", "x = 1", "x = 1")).apply(FILES, "0.5.9") is None
    assert span("x = 1\n", "nothing") == (0, 0)


def test_the_first_edit_that_matches_is_meant() -> None:
    edits = (("A.f", "y", "z"), ("f", "x = 1", "y = 1"), ("A.f", "x = 1", "x = 3"))
    changed = made(*edits).apply(FILES, "0.5.9")
    assert changed == b"y = 1".join(FILES[TARGET].rsplit(b"x = 1", 1))


def test_a_mutant_begins_with_a_release() -> None:
    one = made(("f", "x = 1", "x = 2"), since="0.5.11")
    assert one.apply(FILES, "0.5.9") is None
    assert one.apply(FILES, "0.5.15") is not None


def test_another_check_is_not_the_right_one() -> None:
    one = IN_TARGET[0]
    assert not Outcome(one, {}).caught
    by_another = Outcome(one, {"gate-off": "off by 1"})
    assert by_another.caught and not by_another.rightly
    assert Outcome(one, {"capture": "wrong layers"}).rightly


@pytest.mark.probe
def test_a_sample_is_caught_by_the_right_checks() -> None:
    if not has_torch(PYTHON):
        pytest.skip(f"{PYTHON} has not the verify extra")
    mutants = [one for one in MUTANTS if one.key in SAMPLE]
    outcomes = list(score(Tree("0.5.15"), mutants, PYTHON))
    assert {one.mutant.key for one in outcomes} == SAMPLE
    missed = {one.mutant.key: one.checks for one in outcomes if not one.rightly}
    assert not missed
