"""What surrounds a checkout: a user's environment, settings, hooks, another owner."""

import subprocess

import pytest
from clikit import (
    DEEPSEEK,
    FILES,
    LLAMA,
    NOBODY,
    as_nobody,
    as_root,
    process,
    unchanged,
)
from support import git, snapshot

APPLY = ("apply", "debug-logging", "--target")


def test_git_variables_of_the_caller(cli, checkout, site, tmp_path, monkeypatch):
    """As in a hook: git's own variables point at somebody else's repository."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    env = {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / "index"),
        "GIT_OBJECT_DIRECTORY": str(other / "objects"),
        "GIT_CEILING_DIRECTORIES": str(checkout.parent),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "true",
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with unchanged(other):
        for target in (checkout, site):
            before = snapshot(target)
            assert process(*APPLY, target).code == 0
            assert cli("status", "--check", "--target", target).code == 0
            assert cli("log", "--target", target).out
            assert cli("revert", "--target", target).code == 0
            assert snapshot(target) == before
        assert cli(*APPLY, checkout, "--commit").code == 0
    for name in env:
        monkeypatch.delenv(name)
    assert git(checkout, "rev-list", "--count", "HEAD") == "2\n"
    assert (checkout / ".git" / "patchkit").is_dir()


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A home with every setting that changes what git does."""
    home, hooks = tmp_path / "home", tmp_path / "home" / "hooks"
    hooks.mkdir(parents=True)
    for name in ("pre-commit", "commit-msg", "post-commit", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch '{home}/ran-{name}'\nexit 1\n")
        (hooks / name).chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n\tquotePath = true\n"
        "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = false\n"
        "[color]\n\tui = always\n[diff]\n\tnoprefix = true\n\texternal = false\n"
        "[log]\n\tshowSignature = true\n[init]\n\tdefaultBranch = trunk\n"
        "\ttemplateDir = /nonexistent\n[merge]\n\tconflictStyle = diff3\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.mark.parametrize("kind", ["checkout", "site"])
def test_settings_of_the_user(cli, settings, kind, request):
    target = request.getfixturevalue(kind)
    before = snapshot(target)
    assert cli(*APPLY, target).code == 0
    with open(target.rglob(LLAMA.split("/")[-1]).__next__(), "ab") as file:
        file.write(b"# mine\n")
    assert cli(*APPLY, target, "-O", "layers=all").code == 0
    log = cli("log", "--target", target)
    assert log.code == 0 and "\x1b" not in log.out
    assert cli("revert", "--target", target).code == 0
    after = snapshot(target)
    changed = {path for path in before if before[path] != after[path]}
    assert len(changed) == 1 and set(before) == set(after)
    assert not list(settings.glob("ran-*"))


def test_commit_with_settings_of_the_user(cli, checkout, settings):
    """No hook runs, nothing is signed, and there is no user.name."""
    said = cli(*APPLY, checkout, "--commit")
    assert said.code == 0, said.err
    assert not list(settings.glob("ran-*"))
    assert git(checkout, "log", "-1", "--format=%an %G?").split() == ["patchkit", "N"]


def test_a_checkout_with_converted_line_ends(cli, checkout, settings):
    """core.autocrlf=true: CRLF in the tree, LF in the commits."""
    git(checkout, "config", "core.autocrlf", "true")
    for path in FILES:
        (checkout / "python/sglang" / path).unlink()
    git(checkout, "checkout", "-q", "--", ".")
    assert git(checkout, "status", "--porcelain") == ""
    before = snapshot(checkout)
    assert b"\r\n" in before[f"python/sglang/{LLAMA}"]
    assert cli(*APPLY, checkout).code == 0
    data = (checkout / "python/sglang" / LLAMA).read_bytes()
    assert b"# patchkit" in data and data.count(b"\n") == data.count(b"\r\n")
    assert cli("revert", "--target", checkout).code == 0
    assert snapshot(checkout) == before


@as_root
def test_a_checkout_of_another_user(cli, checkout, open_folder):
    top = open_folder / "checkout"
    checkout.rename(top)
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", top], check=True)
    before = snapshot(top)
    # root works on nobody's checkout
    said = cli(*APPLY, top, "--commit")
    assert said.code == 0, said.err
    assert cli("log", "--target", top).out
    for path in (*FILES, "srt/patchkit_tap", "srt/patchkit_tap/__init__.py"):
        assert (top / "python/sglang" / path).stat().st_uid == NOBODY, path
    assert cli("revert", "--target", top, "--commit").code == 0
    assert snapshot(top) == before


@as_root
def test_the_owner_goes_on_after_root(cli, checkout, open_folder):
    """What root wrote for nobody must not lock nobody out."""
    top = open_folder / "checkout"
    checkout.rename(top)
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", top], check=True)
    before = snapshot(top)
    assert cli(*APPLY, top).code == 0
    said = as_nobody("revert", "--target", top)
    assert said.code == 0, said.err
    assert snapshot(top) == before


@as_root
def test_another_user_may_look(patched_checkout, open_folder):
    top = open_folder / "checkout"
    patched_checkout.rename(top)
    with unchanged(top):
        for command in ("status", "log"):
            said = as_nobody(command, "--target", top)
            assert said.code == 0, said.err
            assert said.out
        said = as_nobody("revert", "--target", top)
    assert said.code == 3
    assert "can't be written" in said.err


def test_detached_head_and_shallow_clone(cli, checkout, tmp_path):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{checkout}", str(clone))
    git(clone, "checkout", "-q", "--detach")
    before = snapshot(clone)
    said = cli(*APPLY, clone, "--commit")
    assert said.code == 0, said.err
    assert cli("revert", "--target", clone, "--commit").code == 0
    assert snapshot(clone) == before


def test_a_checkout_without_commits(cli, site):
    git(site, "init", "-q")
    git(site, "add", "sglang")
    before = snapshot(site)
    assert cli(*APPLY, site).code == 0
    assert cli("revert", "--target", site).code == 0
    assert snapshot(site) == before


def test_a_broken_git_folder(cli, site):
    """Not a repository at all: the tree is taken as what it is."""
    (site / ".git").write_text("gitdir: /nowhere\n")
    assert cli(*APPLY, site).code == 0
    assert (site / ".patchkit").is_dir()
    assert b"# patchkit" in (site / "sglang" / DEEPSEEK).read_bytes()
