"""Every recipe on every release: by default a sample, all 58 by `make matrix`.

``tests/golden/<recipe>.txt`` holds what it does there: the sites with their status, and
the lines that it inserts (only our own; of a recipe that changes SGLang's lines, how
many go and come). PATCHKIT_GOLDEN=write renews it, with ``-m ""`` for all releases.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator

import libcst as cst
import pytest
from libcst.codemod import CodemodContext
from support import RELEASES, ROOT, stock
from test_releases import all_releases

from patchkit import engine
from patchkit.model import Outcome, RecipeInfo, Status
from patchkit.registry import Registry, load
from patchkit.source import marked_by, physical_lines, strip_marks
from patchkit.textdiff import added_and_removed

GOLDEN = ROOT / "tests" / "golden"
INFOS = {info.name: info for info in Registry().near()}
recipes = pytest.mark.parametrize("name", INFOS)
releases = all_releases(("0.4.9", "0.5.9", "0.5.15", "0.5.23"))


def sources(info: RecipeInfo, release: str) -> Iterator[tuple[str, bytes]]:
    """The recipe's files in a release; one that may be absent is left out."""
    for path in info.files:
        file = stock(release) / "sglang" / path
        if file.exists() or path not in dict(info.absent):
            yield path, file.read_bytes()


def surroundings(info: RecipeInfo, release: str) -> dict[str, bytes]:
    folder = stock(release) / "sglang"
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for pattern in info.looks_at
        for file in sorted(folder.glob(pattern))
    }


def outcomes(info: RecipeInfo, release: str) -> Iterator[tuple[bytes, Outcome]]:
    recipe, around = load(info), surroundings(info, release)
    for path, before in sources(info, release):
        yield before, engine.apply(recipe, before, path, {}, around)


@releases
@recipes
def test_it_fits_is_idempotent_and_strips_to_the_original(name, release):
    info, recipe = INFOS[name], load(INFOS[name])
    around = surroundings(info, release)
    for before, found in outcomes(info, release):
        assert found.status in (Status.CHANGED, Status.NOT_NEEDED), found.failures
        ast.parse(found.source)
        again = engine.apply(recipe, found.source, found.path, {}, around)
        assert again.source == found.source
        assert not again.status.failed and again.status is not Status.CHANGED
        if info.inserts_only:
            assert strip_marks(found.source) == before
            lines = [x for x in physical_lines(found.source) if marked_by(x)]
            assert all(len(line.rstrip(b"\n")) <= 88 for line in lines)


@all_releases(("0.5.9",))
@recipes
def test_libcst_over_the_whole_file_gives_the_same(name, release):
    info, recipe = INFOS[name], load(INFOS[name])
    for before, found in outcomes(info, release):
        codemod = recipe(CodemodContext(filename=found.path))
        codemod.surroundings = surroundings(info, release)
        whole = codemod.transform_module(cst.parse_module(before)).bytes
        assert whole == found.source


@pytest.mark.parametrize("release", ["0.5.3", "0.5.9"])
@recipes
def test_a_formatter_leaves_marked_lines_alone(name, release, tmp_path):
    for _, found in outcomes(INFOS[name], release):
        file = tmp_path / "file.py"
        file.write_bytes(found.source)
        command = [sys.executable, "-m", "ruff", "format", "--isolated", str(file)]
        subprocess.run(command, check=True, capture_output=True)
        kept = [x for x in physical_lines(file.read_bytes()) if marked_by(x)]
        assert kept == [x for x in physical_lines(found.source) if marked_by(x)]


def told(info: RecipeInfo, release: str) -> str:
    shown = []
    for before, found in outcomes(info, release):
        shown.append(f"== {found.path}: {found.status.value}")
        shown += [f"{site.name}: {site.status.value}" for site in found.sites]
        if info.inserts_only:
            lines = [x for x in physical_lines(found.source) if marked_by(x)]
            shown += ["+" + line.decode().rstrip("\n") for line in lines]
        else:
            added, removed = added_and_removed(before, found.source)
            shown.append(f"-{removed} +{added}")
    return "\n".join(shown) + "\n"


def read_golden(name: str) -> dict[str, str]:
    """release -> what is recorded for it; releases that agree share a section."""
    found = {}
    for section in (GOLDEN / f"{name}.txt").read_text().split("## ")[1:]:
        head, _, text = section.partition("\n")
        found.update(dict.fromkeys(head.split(), text))
    return found


def write_golden(name: str) -> None:
    sections: dict[str, list[str]] = {}
    for release in RELEASES:
        sections.setdefault(told(INFOS[name], release), []).append(release)
    text = "".join(f"## {' '.join(some)}\n{told}" for told, some in sections.items())
    (GOLDEN / f"{name}.txt").write_text(text)


@releases
@recipes
def test_golden(name, release):
    if os.environ.get("PATCHKIT_GOLDEN") == "write" and release == RELEASES[0]:
        write_golden(name)
    assert told(INFOS[name], release) == read_golden(name)[release]
