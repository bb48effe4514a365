"""debug-logging on every release: by default a sample, all 58 by `make matrix`."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import libcst as cst
import pytest
from libcst.codemod import CodemodContext
from support import RELEASES, ROOT, SAMPLE, git, make_checkout, snapshot, stock

from patchkit import engine
from patchkit.cli import run
from patchkit.model import Status
from patchkit.recipes.debug_logging import DebugLogging
from patchkit.source import marked_by, physical_lines, strip_marks

GOLDEN = ROOT / "tests" / "golden" / "debug-logging"
FILES = tuple(DebugLogging.edits)
FIRST_WITH_CAPTURE = RELEASES.index("0.5.4.post2")
FIRST_WITHOUT_RESIDUAL = RELEASES.index("0.5.21")


def all_releases(by_default: Collection[str]) -> pytest.MarkDecorator:
    """Every release; those not run by default only in `make matrix`."""
    return pytest.mark.parametrize(
        "release",
        [
            pytest.param(one, marks=() if one in by_default else pytest.mark.matrix)
            for one in RELEASES
        ],
    )


releases = all_releases(SAMPLE)


def source(release: str, path: str) -> bytes:
    return (stock(release) / "sglang" / path).read_bytes()


def our_lines(outcome_source: bytes) -> str:
    """Only our own lines, each block under the stripped line that it follows."""
    shown: list[str] = []
    position, inside = 0, False
    for line in physical_lines(outcome_source):
        if marked_by(line):
            if not inside:
                shown.append(f"@@ after line {position}")
            shown.append("+" + line.decode().rstrip("\n"))
        else:
            position += 1
        inside = bool(marked_by(line))
    return "\n".join(shown) + "\n"


@releases
def test_applies_is_idempotent_and_strips_to_the_original(release):
    for path in FILES:
        for options in ({}, {"layers": "all"}, {"layers": "0,2,30"}):
            before = source(release, path)
            outcome = engine.apply(DebugLogging, before, path, options)
            assert outcome.status is Status.CHANGED, outcome.failures
            assert strip_marks(outcome.source) == before
            ast.parse(outcome.source)
            again = engine.apply(DebugLogging, outcome.source, path, options)
            assert again.status is Status.ALREADY_APPLIED
            assert again.source == outcome.source


@releases
def test_which_sites_a_release_needs(release):
    """The eras: capture from 0.5.4.post2, no residual in the loop from 0.5.21."""
    index = RELEASES.index(release)
    missing = set()
    for path in FILES:
        found = engine.apply(
            DebugLogging, source(release, path), path, {"layers": "all"}
        )
        missing |= {s.name for s in found.sites if s.status is Status.NOT_NEEDED}
    expected = set()
    if index < FIRST_WITH_CAPTURE:
        expected.add("deepseek_v2.aux")
    if index >= FIRST_WITHOUT_RESIDUAL:
        expected.add("deepseek_v2.layer")
    assert missing == expected


@releases
def test_no_marked_line_is_longer_than_a_formatter_allows(release):
    for path in FILES:
        found = engine.apply(
            DebugLogging, source(release, path), path, {"layers": "0,2,3,5,7,30,58"}
        )
        lines = [line for line in physical_lines(found.source) if marked_by(line)]
        assert lines
        assert max(len(line.rstrip(b"\n")) for line in lines) <= 88


@releases
@pytest.mark.parametrize("layers", ["off", "all"])
def test_golden_lines(release, layers):
    """What is inserted, and where. PATCHKIT_GOLDEN=write renews the files."""
    shown = ""
    for path in FILES:
        options = {} if layers == "off" else {"layers": layers}
        found = engine.apply(DebugLogging, source(release, path), path, options)
        shown += f"== {path}\n{our_lines(found.source)}"
    golden = GOLDEN / f"{release}-{layers}.txt"
    if os.environ.get("PATCHKIT_GOLDEN") == "write":
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(shown)
    assert shown == golden.read_text()


@all_releases(("0.5.23",))
def test_libcst_over_the_whole_file_gives_the_same(release):
    """The engine's slices against LibCST's own way, twice."""
    for path in FILES:
        before = source(release, path)
        sliced = engine.apply(DebugLogging, before, path, {"layers": "all"}).source
        whole = before
        for _ in range(2):
            codemod = DebugLogging(CodemodContext(filename=path), layers="all")
            whole = codemod.transform_module(cst.parse_module(whole)).bytes
            assert whole == sliced


@releases
def test_round_trip_in_a_checkout_and_in_site_packages(release, tmp_path):
    """Apply, no-op apply, status, diff, revert; git sees only the intended lines."""
    site = tmp_path / "site-packages"
    shutil.copytree(stock(release), site)
    checkout = make_checkout(stock(release), tmp_path / "checkout")
    for folder in (site, checkout):
        before = snapshot(folder)
        target = ["--target", str(folder)]
        assert run(["apply", "debug-logging", *target]) == 0
        assert run(["apply", "debug-logging", "--check", *target]) == 0
        assert run(["status", "--check", *target]) == 0
        if folder == checkout:
            check_git_diff(checkout)
        assert run(["revert", *target]) == 0
        assert snapshot(folder) == before
    assert git(checkout, "status", "--porcelain") == ""


def check_git_diff(checkout: Path) -> None:
    """Only added lines, each with our mark, in the three files; and the tap."""
    diff = git(checkout, "diff", "-U0").splitlines()
    added = [x for x in diff if x.startswith("+") and not x.startswith("+++")]
    removed = [x for x in diff if x.startswith("-") and not x.startswith("---")]
    assert added and not removed
    assert all(line.endswith("  # patchkit: debug-logging") for line in added)
    changed = git(checkout, "diff", "--name-only").split()
    assert sorted(changed) == sorted(f"python/sglang/{path}" for path in FILES)
    status = git(checkout, "status", "--porcelain").splitlines()
    untracked = [line[3:] for line in status if line.startswith("??")]
    assert untracked == ["python/sglang/srt/patchkit_tap/"]


def test_libcsts_own_command_runs_the_recipe(tree, tmp_path):
    folder = tree("0.5.9")
    path = folder / "sglang/srt/models/llama_eagle3.py"
    before = path.read_bytes()
    command = [sys.executable, "-m", "libcst.tool", "codemod", "--no-format", "-x"]
    command += ["patchkit.recipes.debug_logging.DebugLogging", str(path)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    expected = engine.apply(DebugLogging, before, "srt/models/llama_eagle3.py")
    assert path.read_bytes() == expected.source


@pytest.mark.parametrize("release", ["0.4.6", "0.5.9", "0.5.23"])
def test_a_formatter_leaves_marked_lines_alone(release, tmp_path):
    """ruff format (black's style) on the patched file moves no marked line."""
    for path in FILES:
        found = engine.apply(
            DebugLogging, source(release, path), path, {"layers": "0,2,3,5,7,30,58"}
        )
        file = tmp_path / Path(path).name
        file.write_bytes(found.source)
        command = [sys.executable, "-m", "ruff", "format", "--isolated", str(file)]
        subprocess.run(command, check=True, capture_output=True)
        kept = [x for x in physical_lines(file.read_bytes()) if marked_by(x)]
        assert kept == [x for x in physical_lines(found.source) if marked_by(x)]
