"""Recipes of a user's own that are wrong, and what becomes of their neighbours."""

import itertools

import pytest
from clikit import LLAMA, refused, unchanged, write_recipe
from support import snapshot, stock

WRONG = {
    "raises": ("raise ValueError('out of luck')", "raised ValueError: out of luck"),
    "deep": ("return self.change(function)", "RecursionError"),
    "returns nothing": ("return None", "raised"),
    "broken": (
        "return insert_first(function, lambda d: self.lines(['break']))",
        "does not compile",
    ),
    "not idempotent": (
        "import random\n"
        "line = f'said = {random.random()}'\n"
        "return insert_first(function, lambda d: self.lines([line]))",
        "not idempotent",
    ),
    "unmarked": (
        "import libcst as cst\n"
        "new = list(cst.parse_module('said = 1\\n').body)\n"
        "return insert_first(function, lambda d: new)",
        "changed lines that it did not mark",
    ),
    "removes": (
        "block = function.body\n"
        "return function.with_changes(body=block.with_changes(body=block.body[:1]))",
        "changed lines that it did not mark",
    ),
}


def options(site, recipes):
    return ("--target", site, "--recipes", recipes)


@pytest.mark.parametrize("kind", WRONG)
def test_a_recipe_that_does_wrong(cli, site, recipes, kind):
    body, words = WRONG[kind]
    write_recipe(recipes, body=body)
    with unchanged(site):
        said = cli("apply", "user-recipe", "debug-logging", *options(site, recipes))
    refused(said, 3, "user-recipe", LLAMA, words, "nothing was written")


def test_a_recipe_that_exits(cli, site, recipes):
    write_recipe(recipes, body="raise SystemExit(0)")
    refused(cli("apply", "user-recipe", *options(site, recipes)), 3, "SystemExit")


def test_a_recipe_with_a_syntax_error(cli, site, recipes):
    write_recipe(recipes, body="return (")
    said = cli("apply", "user-recipe", *options(site, recipes))
    refused(said, 2, "user_recipe.py", "mend the file")


def test_a_recipe_whose_import_fails(cli, site, recipes):
    path = write_recipe(recipes)
    path.write_text(
        path.read_text().replace("from patchkit", "import gone\nfrom patchkit")
    )
    with unchanged(site):
        said = cli("apply", "user-recipe", *options(site, recipes))
    refused(said, 3, "can't be imported", "No module named 'gone'", "mend")


def test_a_recipe_that_exits_on_import(cli, site, recipes):
    path = write_recipe(recipes)
    path.write_text(path.read_text() + "raise SystemExit(0)\n")
    said = cli("apply", "user-recipe", *options(site, recipes))
    refused(said, 3, "can't be imported", "SystemExit")


def test_metadata_that_is_not_literal(cli, site, recipes):
    path = write_recipe(recipes)
    path.write_text(path.read_text().replace("version = 1", "version = int('1')"))
    said = cli("apply", "user-recipe", *options(site, recipes))
    refused(said, 2, "version must be a literal")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version = 1", "version = 'one'"),
        ("options = {", "options = {'x': 1} or {"),
        ('options = {"text": ("hello", "what the line says")}', "options = {'x': 1}"),
        ("after = ()", "after = 3"),
    ],
)
def test_metadata_of_the_wrong_kind(cli, site, recipes, old, new):
    path = write_recipe(recipes)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    refused(cli("apply", "user-recipe", *options(site, recipes)), 2, "user_recipe.py")


def test_a_name_that_is_taken(cli, recipes):
    write_recipe(recipes, "debug-logging")
    refused(
        cli("list", "--recipes", recipes), 2, "two recipes are called debug-logging"
    )


def test_a_file_that_holds_no_recipe_is_no_recipe(cli, recipes):
    (recipes / "helpers.py").write_text("x = 1\n")
    (recipes / "_private.py").write_text("syntax error\n")
    assert cli("list", "--recipes", recipes).code == 0
    refused(cli("show", "helpers", "--recipes", recipes), 2, "no recipe is called")


def test_recipes_that_wait_for_each_other(cli, site, recipes):
    write_recipe(recipes, "one", after=("two",))
    write_recipe(recipes, "two", after=("one",))
    said = cli("apply", "one", "two", *options(site, recipes))
    refused(said, 2, "recipes wait for each other: one, two")


def test_a_file_that_this_tree_does_not_have(cli, site, recipes):
    write_recipe(recipes, file="srt/models/no_such_model.py")
    with unchanged(site):
        said = cli("apply", "user-recipe", *options(site, recipes))
    refused(said, 3, "srt/models/no_such_model.py", "missing")


def test_a_file_outside_the_target(cli, site, recipes):
    write_recipe(recipes, file="../../outside.py")
    (site.parent / "outside.py").write_text(
        "class LlamaModel:\n    def forward(s):\n  1"
    )
    with unchanged(site.parent):
        said = cli("apply", "user-recipe", *options(site, recipes))
    refused(said, 3, "outside")


# -- a recipe that is gone ----------


@pytest.fixture
def gone(cli, patched, recipes):
    """A tree with debug-logging and a recipe whose file is no longer there."""
    path = write_recipe(recipes)
    assert cli("apply", "user-recipe", *options(patched, recipes)).code == 0
    path.unlink()
    return patched


def test_its_neighbours_can_not_be_recomputed(cli, gone, recipes):
    for command in (["reapply"], ["revert", "debug-logging"]):
        with unchanged(gone):
            said = cli(*command, "--target", gone)
        refused(said, 3, "user-recipe", "no longer there", str(recipes), "put it back")


def test_status_says_so(cli, gone):
    said = cli("status", "--target", gone)
    assert said.code == 0
    assert "its recipe file is gone" in said.words


def test_it_can_be_taken_out_by_name_and_with_everything(cli, gone):
    assert cli("revert", "user-recipe", "--target", gone).code == 0
    assert cli("status", "--target", gone, "--check").code == 0
    assert cli("diff", "--target", gone).out.count("patchkit: user-recipe") == 0


def test_a_full_revert_needs_no_recipe(cli, gone):
    assert cli("revert", "--target", gone).code == 0
    assert snapshot(gone) == snapshot(stock("0.5.9"))


def test_a_broken_recipe_does_not_keep_anyone_from_reverting(cli, patched, recipes):
    path = write_recipe(recipes)
    assert cli("apply", "user-recipe", *options(patched, recipes)).code == 0
    path.write_text("syntax error\n")
    assert cli("status", "--target", patched).code == 0
    assert cli("revert", "--target", patched).code == 0
    assert snapshot(patched) == snapshot(stock("0.5.9"))


def test_put_back_it_works_again(cli, gone, recipes):
    write_recipe(recipes)
    assert cli("reapply", "--target", gone).code == 0


# -- subsets ----------


ONE, TWO, THREE = "a-first", "m-second", "z-third"


@pytest.fixture
def three(recipes):
    """Recipes that all insert at the top of one function."""
    body = "return insert_first(function, lambda d: self.lines(['{} = 1']))"
    for name in (ONE, TWO, THREE):
        write_recipe(recipes, name, body=body.format(name.replace("-", "_")))
    return recipes


@pytest.fixture
def alone(cli, site, three):
    """What each subset makes of a stock tree, applied in one command."""
    stock_tree, found = snapshot(site), {}
    for count in (1, 2, 3):
        for wanted in itertools.combinations((ONE, TWO, THREE), count):
            assert cli("apply", *wanted, *options(site, three)).code == 0
            found[frozenset(wanted)] = snapshot(site)
            assert cli("revert", "--target", site).code == 0
            assert snapshot(site) == stock_tree
    assert len({tuple(sorted(one.items())) for one in found.values()}) == 7
    return found


def test_any_order_and_any_subset_give_the_same_bytes(cli, site, three, alone):
    """Reverting one gives what never applying it would have given."""
    for order in ((ONE, TWO, THREE), (THREE, ONE, TWO), (TWO, THREE, ONE)):
        for name in order:
            assert cli("apply", name, *options(site, three)).code == 0
        left = {ONE, TWO, THREE}
        assert snapshot(site) == alone[frozenset(left)]
        for name in order[:2]:
            left.remove(name)
            assert cli("revert", name, "--target", site).code == 0
            assert snapshot(site) == alone[frozenset(left)]
        assert cli("revert", "--target", site).code == 0


def test_a_users_recipe_around_ours(cli, site, three, alone):
    for name in (ONE, "debug-logging", TWO):
        assert cli("apply", name, *options(site, three)).code == 0
    assert cli("revert", "debug-logging", "--target", site).code == 0
    assert snapshot(site) == alone[frozenset({ONE, TWO})]
    assert cli("apply", "debug-logging", "--target", site).code == 0
    assert cli("revert", ONE, TWO, "--target", site).code == 0
    only = snapshot(site)
    assert cli("revert", "--target", site).code == 0
    assert cli("apply", "debug-logging", "--target", site).code == 0
    assert snapshot(site) == only


@pytest.mark.parametrize("order", [(ONE, TWO), (TWO, ONE)])
def test_after_decides_the_order_of_the_lines(cli, site, recipes, order):
    first, second = order
    write_recipe(recipes, first)
    write_recipe(recipes, second, after=(first,))
    assert cli("apply", second, first, *options(site, recipes)).code == 0
    text = (site / "sglang" / LLAMA).read_text()
    # each goes to the very top of the function, so the later one stands above
    assert text.index(f"# patchkit: {second}") < text.index(f"# patchkit: {first}")
