"""Each planted fault under real releases: it is found, and a run does what was said."""

from __future__ import annotations

import os

import draftkit
import expectations
import pytest
from fault_table import codes_of
from faults import FAULTS

pytestmark = [
    pytest.mark.probe,
    pytest.mark.skipif(
        draftkit.probe_python() is None, reason="needs the verify extra"
    ),
]

RELEASES = os.environ.get("PATCHKIT_DRAFT_RELEASES", "").split() or draftkit.RELEASES


@pytest.fixture(scope="module", params=RELEASES)
def release(request):
    return request.param


@pytest.fixture(scope="module")
def seen(release, tmp_path_factory):
    return draftkit.run_faults(release, tmp_path_factory.mktemp("drafts"))


def test_there_are_enough():
    assert len(FAULTS) >= 30


def test_every_fault_is_found(release, seen):
    found = {name: codes_of(one) for name, one in seen.items()}
    table = expectations.read()
    if os.environ.get("PATCHKIT_DRAFT_EXPECTED") == "write":
        for name, codes in found.items():
            table.setdefault(name, {})[release] = codes
        expectations.write({name: table[name] for name in FAULTS})
        return
    wanted = {name: table[name].get(release) for name in FAULTS}
    assert found == wanted


def test_a_run_does_what_was_said(seen):
    wrong = {name: draftkit.disagreements(one) for name, one in seen.items()}
    assert not {name: said for name, said in wrong.items() if said}


def test_errors_have_something_to_do(seen):
    for one in (one for every in seen.values() for one in every.errors):
        assert one.todo, one.code
        assert one.releases


#: finding -> the recipe it names
HELP = {
    "graphs-differ": "keep-layer-ids",
    "no-capture": "kimi-k25-eagle3",
    "unsorted-ids": "sort-layer-ids",
    "negative-id": "embedding-capture",
    "fc-skipped": "fc-guard",
    "names-dropped": "weight-guard",
    "head-missing": "weight-guard",
}


def test_a_finding_names_the_recipe_that_helps(seen):
    for one in (one for every in seen.values() for one in every.errors):
        if one.code in HELP:
            assert one.recipe == HELP[one.code], one.code
