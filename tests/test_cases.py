"""Every recipe's cases, each in five dresses, and by both runners."""

from __future__ import annotations

import libcst as cst
import pytest
from libcst.codemod import CodemodContext
from support import ROOT

from patchkit.registry import Registry, load
from patchkit.testing import VARIANTS, check_case, read_cases

RECIPES = {info.name: load(info) for info in Registry().all()}
CASES = [
    pytest.param(recipe, case, id=f"{name}-{case.name}")
    for name, recipe in RECIPES.items()
    for case in read_cases(ROOT / "fixtures" / "cases" / name.replace("-", "_"), recipe)
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("recipe", "case"), CASES)
def test_case(recipe, case, variant):
    check_case(recipe, case, variant)


@pytest.mark.parametrize(("recipe", "case"), CASES)
def test_libcsts_runner_agrees(recipe, case):
    if case.after is None:
        return
    codemod = recipe(CodemodContext(filename=case.path), **case.options)
    assert codemod.transform_module(cst.parse_module(case.before)).bytes == case.after


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_docs_and_cases(name):
    info = Registry().get(name)
    assert len(info.doc.split("\n\n")) >= 2, "a recipe's docstring is its page"
    assert info.summary and info.files and info.releases
    cases = read_cases(ROOT / "fixtures/cases" / name.replace("-", "_"), RECIPES[name])
    assert any(case.after for case in cases)
    assert any(case.after is None for case in cases)
    assert {case.path for case in cases} == set(info.files)
