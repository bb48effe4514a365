"""Pages made from recipes, and what the guide to recipes shows, are what runs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from support import ROOT, run_patchkit, snapshot

from patchkit.registry import Registry

spec = importlib.util.spec_from_file_location(
    "recipe_pages", ROOT / "docs" / "recipe_pages.py"
)
assert spec is not None and spec.loader is not None
recipe_pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe_pages)

INFOS = {info.name: info for info in Registry().near()}


@pytest.mark.parametrize("name", INFOS)
def test_the_page_of_a_recipe_is_made_from_it(name):
    file = ROOT / "docs" / "recipes" / f"{name}.md"
    assert file.exists(), "run `make docs`"
    assert file.read_text() == recipe_pages.page(INFOS[name]), "run `make docs`"


def test_there_is_no_page_without_a_recipe():
    pages = {file.stem for file in (ROOT / "docs" / "recipes").glob("*.md")}
    assert pages == set(INFOS)


@pytest.fixture
def written(tmp_path):
    """The files that the guide shows, in a folder."""
    text = (ROOT / "docs" / "writing-recipes.md").read_text()
    found = re.findall(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```\n", text, re.DOTALL)
    assert len(found) >= 6
    for name, content in found:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return tmp_path


def test_the_guides_recipe_passes_its_cases(written):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(written)],
        capture_output=True,
        text=True,
        cwd=written,
        env={**os.environ, "PYTHONPATH": str(written)},
    )
    assert done.returncode == 0 and "10 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("release", ["0.4.6", "0.5.9", "0.5.23"])
def test_the_guides_recipe_fits_real_releases(written, tree, release):
    folder = tree(release)
    before = snapshot(folder)
    where = ("--target", folder)
    done = run_patchkit("apply", "count-forwards", "--recipes", written, *where)
    assert done.returncode == 0, done.stderr
    assert run_patchkit("revert", *where).returncode == 0
    assert snapshot(folder) == before
