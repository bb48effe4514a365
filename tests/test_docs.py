"""Pages made from recipes, and what the guide to recipes shows, are what runs."""

from __future__ import annotations

import importlib.util

import pytest
from support import ROOT

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
