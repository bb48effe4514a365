"""How files stand, on real trees: drift, restored, replaced, outdated."""

import shutil

import pytest
from clikit import (
    DEEPSEEK,
    FILES,
    LLAMA,
    LOGITS,
    TAP,
    edit,
    plain,
    refused,
    unchanged,
    write_recipe,
)
from support import git, make_checkout, snapshot, stock

APPLY = ("apply", "debug-logging", "--target")
NAME = "debug-logging"


def file_states(cli, target, recipe=NAME):
    return cli("status", "--target", target, "--json").file_states(recipe)


def state(cli, target, recipe=NAME):
    return cli("status", "--target", target, "--json").states()[recipe]


def test_drifted_is_merged_and_kept(cli, patched, site):
    deepseek, old, new = (
        patched / "sglang" / DEEPSEEK,
        "# Adapted from:",
        "# My copy of",
    )
    edit(deepseek, old, new)
    found = file_states(cli, patched)
    assert found.pop(DEEPSEEK) == "DRIFTED"
    assert set(found.values()) == {"APPLIED"}
    said = cli(*APPLY, patched, "-O", "layers=all")
    assert said.code == 0
    assert "merged with your edits" in said.out
    assert cli("revert", "--target", patched).code == 0
    expected = (site / "sglang" / DEEPSEEK).read_text().replace(old, new)
    assert deepseek.read_text() == expected


def test_overwritten_by_a_copy_of_the_original(cli, patched, site):
    shutil.copy(site / "sglang" / LOGITS, patched / "sglang" / LOGITS)
    before = snapshot(patched)
    found = file_states(cli, patched)
    assert found.pop(LOGITS) == "OVERWRITTEN"
    assert set(found.values()) == {"APPLIED"}
    said = cli("reapply", "--target", patched)
    assert "the original had been put back; patched again" in said.words
    assert state(cli, patched) == "APPLIED"
    assert snapshot(patched) != before
    assert cli("revert", "--target", patched).code == 0
    assert snapshot(patched) == snapshot(site)


def test_revert_after_the_original_was_put_back(cli, patched, site):
    for path in FILES:
        shutil.copy(site / "sglang" / path, patched / "sglang" / path)
    assert cli("revert", "--target", patched).code == 0
    assert snapshot(patched) == snapshot(site)
    assert state(cli, patched) == "NOT APPLIED"


def test_overwritten_by_git_checkout_and_by_stash(cli, patched_checkout):
    top = patched_checkout
    patched = snapshot(top)
    git(top, "checkout", "-q", "--", f"python/sglang/{LLAMA}")
    assert file_states(cli, top)[LLAMA] == "OVERWRITTEN"
    assert cli(*APPLY, top).code == 0
    assert snapshot(top) == patched
    git(top, "stash", "-q")
    found = file_states(cli, top)
    assert {found[path] for path in FILES} == {"OVERWRITTEN"}
    git(top, "stash", "pop", "-q")
    assert state(cli, top) == "APPLIED"


def test_the_tap_removed_by_git_clean(cli, patched_checkout):
    git(patched_checkout, "clean", "-qfd")
    found = file_states(cli, patched_checkout)
    assert found[f"{TAP}/__init__.py"] == "OVERWRITTEN"
    assert found[LLAMA] == "APPLIED"
    assert cli("reapply", "--target", patched_checkout).code == 0
    assert state(cli, patched_checkout) == "APPLIED"
    git(patched_checkout, "clean", "-qfd")
    assert cli("revert", "--target", patched_checkout).code == 0
    assert git(patched_checkout, "status", "--porcelain") == ""


def install_over(folder, version):
    """As pip does: the old distribution's files go, the new one's come."""
    for one in folder.glob("sglang-*.dist-info"):
        shutil.rmtree(one)
    shutil.copytree(stock(version), folder, dirs_exist_ok=True)


def test_replaced_by_another_release(cli, patched):
    install_over(patched, "0.5.12")
    found = file_states(cli, patched)
    assert {found[path] for path in FILES} == {"REPLACED"}
    assert cli("status", "--target", patched, "--check").code == 1
    said = cli("reapply", "--target", patched)
    assert said.code == 0
    assert "a new epoch" in said.words
    assert state(cli, patched) == "APPLIED"
    new = {path: (stock("0.5.12") / "sglang" / path).read_bytes() for path in FILES}
    for path in FILES:
        data = (patched / "sglang" / path).read_bytes()
        assert data != new[path] and plain(data) == new[path]
    # the old epoch stays readable
    assert len(cli("log", "--target", patched, "--json").json) == 2
    assert cli("revert", "--target", patched).code == 0
    for path in FILES:
        assert (patched / "sglang" / path).read_bytes() == new[path]
    assert not (patched / "sglang" / TAP).exists()


def test_revert_of_a_replaced_tree_leaves_the_new_files(cli, patched):
    install_over(patched, "0.5.12")
    assert cli("revert", "--target", patched).code == 0
    assert snapshot(patched) == snapshot(stock("0.5.12"))
    assert state(cli, patched) == "NOT APPLIED"


def test_replaced_by_a_release_without_metadata(cli, patched):
    """Unpacked over it, with no RECORD to prove anything."""
    install_over(patched, "0.5.12")
    for one in patched.glob("sglang-*.dist-info"):
        shutil.rmtree(one)
    assert state(cli, patched) == "REPLACED"
    assert cli("reapply", "--target", patched).code == 0
    assert cli("revert", "--target", patched).code == 0
    new = stock("0.5.12") / "sglang"
    assert (patched / "sglang" / DEEPSEEK).read_bytes() == (new / DEEPSEEK).read_bytes()


@pytest.fixture
def history(tmp_path):
    """A checkout with 0.5.9 on main and 0.5.12 on the branch ``next``."""
    top = make_checkout(stock("0.5.9"), tmp_path / "history")
    git(top, "checkout", "-q", "-b", "next")
    shutil.copytree(
        stock("0.5.12") / "sglang", top / "python/sglang", dirs_exist_ok=True
    )
    git(top, "add", "-A")
    git(top, "commit", "-qm", "0.5.12")
    git(top, "checkout", "-q", "main")
    return top


def test_another_tag_in_a_checkout(cli, history):
    assert cli(*APPLY, history).code == 0
    git(history, "checkout", "-q", "-f", "next")
    found = file_states(cli, history)
    assert {found[path] for path in FILES} == {"REPLACED"}
    assert cli("reapply", "--target", history).code == 0
    assert state(cli, history) == "APPLIED"
    assert len(cli("log", "--target", history, "--json").json) == 2
    assert cli("revert", "--target", history).code == 0
    assert git(history, "status", "--porcelain") == ""


@pytest.fixture
def upstream(checkout):
    """A checkout of 0.5.9 whose upstream, the branch ``next``, has small changes."""
    git(checkout, "checkout", "-q", "-b", "next")
    for path in FILES:
        file = checkout / "python/sglang" / path
        file.write_bytes(b"# upstream\n" + file.read_bytes() + b"\nLATER = 1\n")
    git(checkout, "commit", "-qam", "small changes")
    git(checkout, "checkout", "-q", "main")
    return checkout


def test_pull_where_the_marks_survive(cli, upstream):
    """`git pull --autostash` puts our lines into the new files by itself."""
    history = upstream
    assert cli(*APPLY, history).code == 0
    git(history, "merge", "-q", "--ff-only", "--autostash", "next")
    assert b"# patchkit" in (history / "python/sglang" / LLAMA).read_bytes()
    assert state(cli, history) == "REPLACED"
    assert cli("reapply", "--target", history).code == 0
    assert state(cli, history) == "APPLIED"
    for path in FILES:
        committed = git(history, "show", f"HEAD:python/sglang/{path}").encode()
        assert plain((history / "python/sglang" / path).read_bytes()) == committed
    assert cli("revert", "--target", history).code == 0
    assert git(history, "status", "--porcelain") == ""


def test_pull_that_leaves_conflict_markers(cli, history):
    """From 0.5.9 to 0.5.12 the imports moved: git's own autostash conflicts."""
    assert cli(*APPLY, history).code == 0
    git(history, "merge", "-q", "--ff-only", "--autostash", "next")
    assert b"<<<<<<<" in (history / "python/sglang" / DEEPSEEK).read_bytes()
    with unchanged(history):
        said = cli("reapply", "--target", history)
    refused(said, 3, DEEPSEEK, "not valid Python", "mend it")
    # what git itself suggests: take upstream's files, then reapply
    git(history, "checkout", "-q", "-f", "next")
    assert cli("reapply", "--target", history).code == 0
    assert state(cli, history) == "APPLIED"


def test_pull_with_edits_of_ones_own(cli, upstream):
    """The user's edit survives a pull, a reapply and a revert."""
    history = upstream
    llama = history / "python/sglang" / LLAMA
    assert cli(*APPLY, history).code == 0
    edit(llama, "# idle batch", "# idle batch, mine")
    git(history, "merge", "-q", "--ff-only", "--autostash", "next")
    assert cli("reapply", "--target", history).code == 0
    assert cli("revert", "--target", history).code == 0
    expected = git(history, "show", f"HEAD:python/sglang/{LLAMA}")
    assert llama.read_text() == expected.replace("# idle batch", "# idle batch, mine")


def test_outdated_by_a_newer_recipe(cli, site, recipes):
    write_recipe(recipes)
    options = ("--target", site, "--recipes", recipes)
    assert cli("apply", "user-recipe", *options).code == 0
    new = "return insert_first(function, lambda d: self.lines(['said = 2']))"
    write_recipe(recipes, version=2, body=new)
    said = cli("status", *options, "--check")
    assert said.code == 1
    assert "OUTDATED" in said.out and "the recipe is at version 2 now" in said.out
    assert cli("reapply", *options).code == 0
    text = (site / "sglang" / LLAMA).read_text()
    assert "said = 2  # patchkit: user-recipe" in text and "hello" not in text
    assert cli("status", *options, "--check").code == 0
    assert "Patchkit-Version: 2" in cli("log", *options).out
    assert cli("revert", *options).code == 0
    assert snapshot(site) == snapshot(stock("0.5.9"))


def test_outdated_by_a_change_without_a_new_version(cli, site, recipes):
    path = write_recipe(recipes)
    options = ("--target", site, "--recipes", recipes)
    assert cli("apply", "user-recipe", *options).code == 0
    path.write_text(path.read_text() + "# edited\n")
    said = cli("status", *options)
    assert "OUTDATED" in said.out and "the recipe has changed since" in said.out


def test_a_users_recipe_is_found_again_without_its_flag(cli, site, recipes):
    write_recipe(recipes)
    options = ("--target", site)
    assert cli("apply", "user-recipe", *options, "--recipes", recipes).code == 0
    assert state(cli, site, "user-recipe") == "APPLIED"
    with unchanged(site):
        assert cli("reapply", *options).code == 0
    assert cli("apply", "debug-logging", *options).code == 0
    assert cli("revert", "debug-logging", *options).code == 0
    assert "said = 'hello'" in (site / "sglang" / LLAMA).read_text()


def test_outdated_by_a_newer_tap(cli, patched, tmp_path, monkeypatch):
    from patchkit import registry

    newer = tmp_path / "tap"
    newer.mkdir()
    for path in registry._tap_sources():
        shutil.copy(path, newer)
    with open(newer / "settings.py", "ab") as file:
        file.write(b"# newer\n")
    sources = sorted(newer.glob("*.py"))
    monkeypatch.setattr(registry, "_tap_sources", lambda: sources)
    registry.tap_files.cache_clear()
    try:
        said = cli("status", "--target", patched)
        assert "OUTDATED" in said.out and "the tap has changed since" in said.out
        assert cli("reapply", "--target", patched).code == 0
        assert state(cli, patched) == "APPLIED"
        tap = patched / "sglang" / TAP / "settings.py"
        assert tap.read_bytes() == (newer / "settings.py").read_bytes()
    finally:
        monkeypatch.undo()
        registry.tap_files.cache_clear()
    assert state(cli, patched) == "OUTDATED"
    assert cli("revert", "--target", patched).code == 0
    assert snapshot(patched) == snapshot(stock("0.5.9"))


def test_an_edited_tap_is_drift_and_is_kept(cli, patched):
    settings = patched / "sglang" / TAP / "settings.py"
    settings.write_bytes(settings.read_bytes() + b"# mine\n")
    assert file_states(cli, patched)[f"{TAP}/settings.py"] == "DRIFTED"
    assert cli("reapply", "--target", patched).code == 0
    assert settings.read_bytes().endswith(b"# mine\n")


def test_edits_that_an_apply_has_merged_are_still_drift(cli, patched):
    """They are in the journal by then; status and diff --drift must still agree."""
    edit(patched / "sglang" / LLAMA, "# idle batch", "# mine")
    assert cli("reapply", "--target", patched).code == 0
    said = cli("status", "--check", "--target", patched)
    assert said.code == 1 and "DRIFTED" in said.out
    assert "+        # mine" in cli("diff", "--drift", "--target", patched).out
    edit(patched / "sglang" / LLAMA, "# mine", "# idle batch")
    assert cli("status", "--check", "--target", patched).code == 0
    assert cli("diff", "--drift", "--target", patched).out == ""


def test_a_foreign_tree_is_not_said_to_be_bare(cli, patched):
    shutil.rmtree(patched / ".patchkit")
    for command in ("diff", "export", "reapply"):
        said = cli(command, "--target", patched)
        assert said.code == 3 and "no journal" in said.err
