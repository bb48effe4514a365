"""Random edits by a user, before and after: theirs stay, ours go."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import stock

from patchkit import engine
from patchkit.cli import run
from patchkit.model import Status
from patchkit.recipes.debug_logging import DebugLogging
from patchkit.source import BadSource, decode, physical_lines, strip_marks

FILES = tuple(DebugLogging.edits)
RELEASES = ("0.4.6", "0.5.5", "0.5.15", "0.5.23")

COMMENTS = st.text(
    st.characters(
        codec="utf-8", exclude_characters="\r\n\0", exclude_categories=("Cs",)
    ),
    max_size=30,
).map(lambda text: f"# {text}\n".encode())


def edited(data: bytes, places: list[int], texts: list[bytes]) -> bytes:
    """Comment lines put at top-level places (no statement is split)."""
    lines = physical_lines(data)
    starts = [
        i
        for i, line in enumerate(lines)
        if line.startswith((b"class ", b"def ", b"logger"))
        and (i == 0 or not lines[i - 1].startswith(b"@"))
    ]
    for place, text in zip(places, texts):
        lines.insert(starts[place % len(starts)], text)
    return b"".join(lines)


EDITS = st.lists(st.tuples(st.integers(0, 10_000), COMMENTS), min_size=1, max_size=5)


@settings(max_examples=40)
@given(st.sampled_from(RELEASES), st.sampled_from(FILES), EDITS)
def test_edits_before_apply_stay(release, path, edits):
    stock_file = (stock(release) / "sglang" / path).read_bytes()
    before = edited(stock_file, *map(list, zip(*edits)))
    assume(b"patchkit:" not in before)
    outcome = engine.apply(DebugLogging, before, path)
    assert outcome.status is Status.CHANGED, outcome.failures
    assert strip_marks(outcome.source) == before


@pytest.fixture(scope="module")
def patched():
    """Patched trees, made once a release; tests work on copies."""
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for release in RELEASES:
            tree = Path(folder) / release
            shutil.copytree(stock(release), tree)
            assert run(["apply", "debug-logging", "--target", str(tree)]) == 0
            made[release] = tree
        yield made


@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(release=st.sampled_from(RELEASES), path=st.sampled_from(FILES), edits=EDITS)
def test_edits_between_apply_and_revert_stay(patched, release, path, edits):
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "site-packages"
        shutil.copytree(patched[release], tree)
        file = tree / "sglang" / path
        mine = edited(file.read_bytes(), *map(list, zip(*edits)))
        assume(mine.count(b"patchkit:") == file.read_bytes().count(b"patchkit:"))
        file.write_bytes(mine)
        assert run(["revert", "--target", str(tree)]) == 0
        assert file.read_bytes() == strip_marks(mine)
        for other in FILES:
            if other != path:
                untouched = (stock(release) / "sglang" / other).read_bytes()
                assert (tree / "sglang" / other).read_bytes() == untouched
        assert not os.path.exists(tree / "sglang/srt/patchkit_tap")


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_faithfully_or_refused(data):
    try:
        text = decode(data)
    except BadSource:
        return
    assert text.encode(text.text) == data
    assert b"".join(physical_lines(data)) == data


@settings(max_examples=60)
@given(st.binary(max_size=400), st.sampled_from(FILES))
def test_any_bytes_give_a_named_status(data, path):
    outcome = engine.apply(DebugLogging, data, path)
    assert outcome.status in (Status.REFUSED, Status.ANCHOR_MISSING)
    assert outcome.source == data
    assert outcome.sites
