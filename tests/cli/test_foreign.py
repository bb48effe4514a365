"""Marks without a journal: adopted or reverted on proof only."""

import shutil

import pytest
from clikit import DEEPSEEK, FILES, LLAMA, TAP, edit, refused, unchanged, write_recipe
from support import git, snapshot, stock

APPLY = ("apply", "debug-logging", "--target")


@pytest.fixture
def foreign(patched):
    """A patched tree that was copied without its journal."""
    shutil.rmtree(patched / ".patchkit")
    return patched


@pytest.fixture
def foreign_checkout(patched_checkout):
    shutil.rmtree(patched_checkout / ".git" / "patchkit")
    return patched_checkout


def test_status_says_foreign_and_whether_it_is_proven(cli, foreign):
    with unchanged(foreign):
        said = cli("status", "--target", foreign, "--check")
    assert said.code == 1
    assert "FOREIGN" in said.out and "are proven" in said.words
    edit(foreign / "sglang" / LLAMA, "# idle batch", "# mine")
    said = cli("status", "--target", foreign)
    assert "can't be proven" in said.words


def test_apply_adopts_what_the_wheels_record_proves(cli, foreign):
    before = snapshot(foreign)
    said = cli(*APPLY, foreign)
    assert said.code == 0
    assert "the original was proven and adopted" in said.words
    assert snapshot(foreign) == before
    assert cli("status", "--target", foreign, "--check").code == 0
    assert cli("revert", "--target", foreign).code == 0
    assert snapshot(foreign) == snapshot(stock("0.5.9"))


def test_revert_on_the_wheels_record(cli, foreign):
    said = cli("revert", "--target", foreign)
    assert said.code == 0
    assert snapshot(foreign) == snapshot(stock("0.5.9"))
    assert not (foreign / "sglang" / TAP).exists()


def test_revert_and_adopt_on_git_history(cli, foreign_checkout):
    top = foreign_checkout
    before = snapshot(top)
    assert cli(*APPLY, top).code == 0
    assert snapshot(top) == before
    shutil.rmtree(top / ".git" / "patchkit")
    assert cli("revert", "--target", top).code == 0
    assert git(top, "status", "--porcelain") == ""


def test_a_committed_patch_in_a_fresh_clone(cli, patched_checkout, tmp_path):
    git(patched_checkout, "add", "-A")
    git(patched_checkout, "commit", "-qm", "patched")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(patched_checkout), str(clone))
    assert cli("status", "--target", clone, "--json").states() == {
        "debug-logging": "FOREIGN"
    }
    assert cli("revert", "--target", clone).code == 0
    assert git(clone, "diff", "HEAD~1", "--stat") == ""


@pytest.mark.parametrize("command", [["apply", "debug-logging"], ["revert"]])
def test_what_is_not_proven_is_refused(cli, foreign, command):
    shutil.rmtree(foreign / "sglang-0.5.9.dist-info")
    with unchanged(foreign):
        said = cli(*command, "--target", foreign)
    refused(said, 3, "marks, but no journal", *FILES, "reinstall SGLang")


def test_an_edit_in_a_foreign_file_is_not_lost(cli, foreign):
    edit(foreign / "sglang" / LLAMA, "# idle batch", "# mine")
    with unchanged(foreign):
        said = cli("revert", "--target", foreign)
    refused(said, 3, LLAMA)
    assert DEEPSEEK not in said.err.partition("next:")[0]


def test_marks_that_came_back_after_a_revert(cli, patched, tmp_path):
    """The journal itself knows the original, with no RECORD to prove it."""
    shutil.rmtree(patched / "sglang-0.5.9.dist-info")
    shutil.copytree(patched / "sglang", tmp_path / "aside")
    assert cli("revert", "--target", patched).code == 0
    original = snapshot(patched)
    shutil.copytree(tmp_path / "aside", patched / "sglang", dirs_exist_ok=True)
    assert cli("status", "--target", patched, "--json").states() == {
        "debug-logging": "FOREIGN"
    }
    assert cli("revert", "--target", patched).code == 0
    assert snapshot(patched) == original


def test_another_recipe_does_not_silently_drop_foreign_marks(cli, foreign, recipes):
    write_recipe(recipes)
    options = ("--target", foreign, "--recipes", recipes)
    with unchanged(foreign):
        said = cli("apply", "user-recipe", *options)
    refused(said, 3, "debug-logging")
    assert cli("apply", "user-recipe", "debug-logging", *options).code == 0
    assert "tap_fc_in" in (foreign / "sglang" / LLAMA).read_text()


def test_a_strangers_tap_folder_is_not_overwritten(cli, site):
    folder = site / "sglang" / TAP
    folder.mkdir()
    (folder / "__init__.py").write_text("mine = 1\n")
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, f"{TAP}/__init__.py", "not from patchkit")


def test_a_file_where_the_taps_folder_goes(cli, site):
    (site / "sglang" / TAP).write_text("mine")
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, TAP)


def test_other_files_in_the_taps_folder_stay(cli, patched):
    note = patched / "sglang" / TAP / "notes.txt"
    note.write_text("mine")
    assert cli("revert", "--target", patched).code == 0
    assert [one.name for one in note.parent.iterdir()] == ["notes.txt"]
