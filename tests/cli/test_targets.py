"""Which tree a command means, and which copy python imports."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from clikit import process, refused, unchanged
from support import git, snapshot

APPLY = ("apply", "debug-logging", "--target")


def package(cli, *arguments):
    said = cli("status", *arguments, "--json")
    assert said.code == 0, said.out
    return Path(said.json["target"]["package"])


@pytest.mark.parametrize("below", ["", "python", "python/sglang"])
def test_spellings_of_a_checkout(cli, checkout, below):
    assert package(cli, "--target", checkout / below) == checkout / "python" / "sglang"
    said = cli("status", "--target", checkout / below, "--json").json["target"]
    assert said["layout"] == "checkout"
    assert said["journal"] == str(checkout / ".git" / "patchkit")


@pytest.mark.parametrize("below", ["", "sglang"])
def test_spellings_of_site_packages(cli, site, below):
    assert package(cli, "--target", site / below) == site / "sglang"
    said = cli("status", "--target", site / below, "--json").json["target"]
    assert said["layout"] == "site-packages"
    assert said["journal"] == str(site / ".patchkit")


def test_a_relative_target(site):
    for target, where in (("site-packages", site.parent), (".", site), ("..", site)):
        said = process("status", "--target", target, cwd=where)
        assert (said.code == 0) is (target != ".."), said.err
    said = process("apply", "debug-logging", "--target", "sglang/", cwd=site)
    assert said.code == 0, said.err
    assert process("status", "--check", "--target", site).code == 0


def test_a_link_to_the_tree(cli, site, tmp_path):
    (tmp_path / "link").symlink_to(site)
    assert package(cli, "--target", tmp_path / "link") == site / "sglang"


def test_a_home_relative_target(cli, site, monkeypatch):
    monkeypatch.setenv("HOME", str(site.parent))
    assert package(cli, "--target", "~/site-packages") == site / "sglang"
    refused(cli("status", "--target", "~nosuchuser/x"), 2, "no such folder")


def test_a_path_with_spaces_and_other_letters(cli, site, tmp_path):
    folder = tmp_path / "größe und  raum" / "ディレクトリ"
    folder.parent.mkdir()
    site.rename(folder)
    before = snapshot(folder)
    env = {"LC_ALL": "C"}
    said = process(*APPLY, folder, env=env)
    assert said.code == 0, said.err
    for command in ("status", "log", "diff", "export"):
        assert cli(command, "--target", folder).code == 0
        said = cli(command, "--target", folder, "--json")
        assert said.code == 0 and said.json
    assert process("revert", "--target", folder, env=env).code == 0
    assert snapshot(folder) == before


def test_sglang_dir_is_the_default_target(cli, site, patched, monkeypatch):
    monkeypatch.setenv("SGLANG_DIR", str(site))
    assert package(cli) == site / "sglang"
    assert package(cli, "--target", patched) == patched / "sglang"
    monkeypatch.setenv("SGLANG_DIR", str(site / "nowhere"))
    refused(cli("status"), 2, "SGLANG_DIR", "no such folder")


def test_no_target_at_all(cli):
    refused(cli("status"), 2, "no target", "can't import sglang")


@pytest.fixture
def interpreter(tmp_path, site):
    """Another python, whose site-packages name ``site`` in a .pth file."""
    folder = tmp_path / "venv"
    venv.create(folder, symlinks=True)
    (lib,) = folder.glob("lib/python*/site-packages")
    (lib / "there.pth").write_text(f"{site}\n")
    return folder / "bin" / "python"


def test_python_names_the_tree_it_imports(cli, interpreter, site):
    assert package(cli, "--python", interpreter) == site / "sglang"
    said = cli("status", "--python", interpreter)
    assert "this is the copy that python imports" in said.out
    assert "warning" not in said.out


def test_another_copy_than_python_imports_is_warned_of(cli, interpreter, patched, site):
    said = cli("status", "--python", interpreter, "--target", patched)
    assert f"warning: python imports {site / 'sglang'}" in said.out
    said = cli("revert", "--python", interpreter, "--target", patched)
    assert said.code == 0
    said = cli(*APPLY, patched, "--python", interpreter)
    assert said.code == 0
    assert "warning" in said.out and str(site / "sglang") in said.out
    said = cli(*APPLY, patched, "--python", interpreter, "--json").json
    assert any(str(site / "sglang") in one for one in said["notes"])
    # no warning where it is the right copy
    assert "warning" not in cli(*APPLY, site, "--python", interpreter).out


def test_an_interpreter_without_sglang(cli, site, tmp_path):
    venv.create(tmp_path / "empty", symlinks=True)
    python = tmp_path / "empty" / "bin" / "python"
    refused(cli("status", "--python", python), 2, "can't import sglang", str(python))
    said = cli("status", "--python", python, "--target", site)
    assert said.code == 0
    assert "python imports" not in said.out


@pytest.mark.parametrize("python", ["/nonexistent/python", "/", "false"])
def test_an_interpreter_that_does_not_run(cli, site, python):
    with unchanged(site):
        said = cli(*APPLY, site, "--python", python)
    refused(said, 2, f"--python {python} can't be run")


def test_a_namespace_folder_is_not_what_python_imports(checkout, tmp_path):
    """`python -m patchkit` beside a clone called sglang/: that is no package."""
    checkout.rename(tmp_path / "sglang")
    said = process("status", cwd=tmp_path)
    refused(said, 2, "can't import sglang")


def test_a_tree_patched_first_and_made_a_checkout_later(cli, patched):
    git(patched, "init", "-q")
    git(patched, "add", "sglang")
    git(patched, "commit", "-qm", "patched")
    assert cli("status", "--target", patched, "--check").code == 0
    assert cli("revert", "--target", patched).code == 0
    assert (
        b"patchkit" not in (patched / "sglang/srt/models/deepseek_v2.py").read_bytes()
    )


def test_an_untracked_tree_inside_somebodys_repository(cli, checkout, site):
    inside = checkout / ".venv" / "site-packages"
    inside.parent.mkdir()
    site.rename(inside)
    status = git(checkout, "status", "--porcelain")
    said = cli("status", "--target", inside, "--json").json["target"]
    assert said["journal"] == str(inside / ".patchkit")
    assert cli(*APPLY, inside).code == 0
    assert not (checkout / ".git" / "patchkit").exists()
    assert git(checkout, "status", "--porcelain") == status


def test_worktrees_have_journals_of_their_own(cli, checkout, tmp_path):
    other = tmp_path / "other"
    git(checkout, "worktree", "add", "-q", str(other))
    before = snapshot(other)
    assert cli(*APPLY, other).code == 0
    assert cli("status", "--target", other, "--check").code == 0
    assert cli("status", "--target", checkout, "--json").states() == {
        "debug-logging": "NOT APPLIED"
    }
    assert git(checkout, "status", "--porcelain") == ""
    assert (checkout / ".git" / "worktrees" / "other" / "patchkit").is_dir()
    assert not (checkout / ".git" / "patchkit").exists()
    assert cli("revert", "--target", other).code == 0
    assert snapshot(other) == before


def test_no_home(site):
    env = {k: v for k, v in os.environ.items() if k not in ("HOME", "SGLANG_DIR")}
    for command in ("apply debug-logging", "status", "revert"):
        done = subprocess.run(
            [sys.executable, "-m", "patchkit", *command.split(), "--target", site],
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


def test_no_git_on_this_machine(site, tmp_path):
    shutil.copytree(site, tmp_path / "copy")
    with unchanged(site):
        said = process(*APPLY, site, env={"PATH": str(tmp_path)})
    refused(said, 4, "no git")
