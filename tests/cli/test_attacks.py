"""Ways in which an edit could get lost, or a broken tree be called fine."""

import os
import shutil
import subprocess
import sys

import pytest
from clikit import DEEPSEEK, LLAMA, TAP, as_root, edit, refused, unchanged
from support import git, snapshot

from patchkit.workspace import files

APPLY = ("apply", "debug-logging", "--commit", "--target")


def test_a_file_saved_while_apply_is_at_work_is_not_overwritten(cli, site, monkeypatch):
    target = site / "sglang" / LLAMA
    prepare = files._prepare

    def save_meanwhile(real, data):
        if b"# saved by an editor" not in target.read_bytes():
            target.write_bytes(target.read_bytes() + b"# saved by an editor\n")
        return prepare(real, data)

    before = snapshot(site)
    monkeypatch.setattr(files, "_prepare", save_meanwhile)
    refused(
        cli("apply", "debug-logging", "--target", site),
        3,
        LLAMA,
        "changed by somebody else",
        "run it again",
    )
    after = snapshot(site)
    assert after.pop(f"sglang/{LLAMA}").endswith(b"# saved by an editor\n")
    before.pop(f"sglang/{LLAMA}")
    assert after == before
    monkeypatch.undo()
    assert cli("status", "--target", site).code == 0
    assert cli("apply", "debug-logging", "--target", site).code == 0
    assert target.read_bytes().endswith(b"# saved by an editor\n")


def test_a_killed_reapply_over_a_cleaned_checkout_leaves_no_empty_files(
    cli, patched_checkout, monkeypatch
):
    """git clean took the tap away: a file that is not there is not an empty one."""
    git(patched_checkout, "checkout", "-q", "--", ".")
    git(patched_checkout, "clean", "-fdq")
    monkeypatch.setattr(files, "write_all", _killed)
    with pytest.raises(KeyboardInterrupt):
        _reapply(patched_checkout)
    monkeypatch.undo()
    assert cli("status", "--target", patched_checkout).code == 0
    tap = patched_checkout / "python/sglang" / TAP
    assert not tap.exists() or all(one.read_bytes() for one in tap.glob("*.py"))
    assert cli("reapply", "--target", patched_checkout).code == 0
    assert all(one.read_bytes() for one in tap.glob("*.py"))
    assert cli("status", "--check", "--target", patched_checkout).code == 0


def _killed(*arguments):
    raise KeyboardInterrupt


def _reapply(target):
    from patchkit.registry import Registry
    from patchkit.target import find_package
    from patchkit.workspace.planner import plan_reapply
    from patchkit.workspace.tree import Workspace
    from patchkit.workspace.writer import execute

    workspace = Workspace(find_package(str(target), None), Registry())
    with workspace.writing():
        execute(workspace, plan_reapply(workspace))


@pytest.mark.parametrize("kind", ["link", "hard link", "fifo"])
def test_a_lock_that_is_something_else_is_not_written_to(cli, site, tmp_path, kind):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    folder = site / ".patchkit"
    folder.mkdir()
    if kind == "link":
        (folder / "lock").symlink_to(precious)
    elif kind == "hard link":
        os.link(precious, folder / "lock")
    else:
        os.mkfifo(folder / "lock")
    said = cli("apply", "debug-logging", "--target", site)
    assert said.code == 3 and "Traceback" not in said.err
    assert precious.read_text() == "precious"


@as_root
def test_root_gives_nothing_away_through_links_in_a_users_journal(
    cli, site, patched, tmp_path
):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    os.chmod(precious, 0o600)
    journal = patched / ".patchkit"
    (journal / "journal.git" / "link").symlink_to(precious)
    for one in [patched, *patched.rglob("*")]:
        os.chown(one, 65534, 65534, follow_symlinks=False)
    assert cli("revert", "--target", patched).code == 0
    assert precious.stat().st_uid == 0


def test_lines_of_ours_that_are_gone_are_put_back(cli, patched):
    before = snapshot(patched)
    path = patched / "sglang" / LLAMA
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "import patchkit_tap" not in line]
    path.write_text("".join([*kept, "# mine\n"]))
    assert cli("status", "--check", "--target", patched).code == 1
    assert cli("reapply", "--target", patched).code == 0
    assert path.read_bytes() == before[f"sglang/{LLAMA}"] + b"# mine\n"


def test_an_edit_of_one_of_our_lines_stays_and_stays_visible(cli, patched):
    edit(patched / "sglang" / LLAMA, '"llama_eagle3.fc_in",', '"my.site",')
    command = ("apply", "debug-logging", "-O", "layers=all")
    assert cli(*command, "--target", patched).code == 0
    assert '"my.site",' in (patched / "sglang" / LLAMA).read_text()
    assert cli("status", "--check", "--target", patched).code == 1
    with unchanged(patched):
        refused(cli("revert", "--target", patched), 3, LLAMA, "overlap")


@pytest.mark.parametrize("which", ["all", "one"])
def test_marks_that_a_tool_stripped_are_not_taken_for_the_original(cli, patched, which):
    path = patched / "sglang" / LLAMA
    text = path.read_text()
    count = -1 if which == "all" else 1
    mark = "  # patchkit: debug-logging"
    gate = "if patchkit_tap.ENABLED:"
    if which == "all":
        path.write_text(text.replace(mark, ""))
    else:
        path.write_text(text.replace(gate + mark, gate, count))
    assert cli("status", "--check", "--target", patched).code == 1
    with unchanged(patched):
        said = cli("revert", "--target", patched)
    assert said.code == 3, said.out


def test_a_copy_of_our_lines_in_the_users_code_is_not_left_calling_nothing(
    cli, patched
):
    path = patched / "sglang" / LLAMA
    text = path.read_text()
    begin = text.index("class LlamaModel(")
    end = text.index("class LlamaForCausalLMEagle3(")
    copied = text[begin:end].replace("class LlamaModel(", "class MyModel(")
    path.write_text(text + "\n\n" + copied)
    with unchanged(patched):
        said = cli("revert", "--target", patched)
    assert said.code == 3, said.out


def test_commit_refuses_what_is_staged_but_not_in_the_work_tree(cli, checkout):
    path = checkout / "python/sglang" / LLAMA
    original = path.read_bytes()
    path.write_bytes(original + b"# staged\n")
    git(checkout, "add", "-A")
    path.write_bytes(original)
    with unchanged(checkout):
        said = cli(*APPLY, checkout)
    refused(said, 3, LLAMA, "uncommitted edits of yours")
    assert "# staged" in git(checkout, "show", f":python/sglang/{LLAMA}")


def test_what_we_make_is_as_open_as_the_tree_whatever_the_umask(cli, site):
    old = os.umask(0o077)
    try:
        assert cli("apply", "debug-logging", "--target", site).code == 0
    finally:
        os.umask(old)
    tap = site / "sglang" / TAP
    assert tap.stat().st_mode & 0o777 == (site / "sglang").stat().st_mode & 0o777
    assert all(one.stat().st_mode & 0o444 == 0o444 for one in tap.glob("*.py"))
    assert (site / ".patchkit").stat().st_mode & 0o055 == 0o055


def test_a_damaged_index_does_not_move_the_journal(cli, patched_checkout):
    index = patched_checkout / ".git" / "index"
    index.write_bytes(b"garbage")
    with unchanged(patched_checkout):
        said = cli("status", "--target", patched_checkout)
    assert said.code == 4 and "FOREIGN" not in said.out
    assert not (patched_checkout / "python" / ".patchkit").exists()


def test_a_link_in_place_of_the_tap_folder(cli, patched, tmp_path):
    tap = patched / "sglang" / TAP
    shutil.move(tap, patched / "sglang" / "elsewhere")
    tap.symlink_to(patched / "sglang" / "elsewhere")
    with unchanged(patched):
        refused(cli("revert", "--target", patched), 3, TAP, "is a link")


def test_named_revert_of_a_foreign_tree(cli, patched):
    shutil.rmtree(patched / ".patchkit")
    with unchanged(patched):
        refused(cli("revert", "debug-logging", "--target", patched), 3, "no journal")


def test_python_by_a_relative_path(site, tmp_path):

    link = tmp_path / "bin" / "python"
    link.parent.mkdir()
    link.symlink_to(sys.executable)
    command = [sys.executable, "-m", "patchkit", "status", "--python", "bin/python"]
    done = subprocess.run(
        [*command, "--target", str(site)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_fork_that_calls_the_logits_processor_otherwise(cli, site):
    edit(site / "sglang" / DEEPSEEK, "self.logits_processor(", "self.processor(")
    with unchanged(site):
        said = cli("apply", "debug-logging", "-O", "layers=all", "--target", site)
    refused(said, 3, DEEPSEEK, "no call of self.logits_processor")


@pytest.mark.parametrize("redirect", [">&-", ">/dev/full", "--json >/dev/full"])
def test_an_answer_that_cannot_be_written(redirect):
    command = f"{sys.executable} -m patchkit list {redirect}"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True)
    assert done.returncode == (0 if redirect == ">&-" else 4)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("where", ["far", "near"])
@pytest.mark.parametrize("also", [(), ("fc-guard", "debug-logging")])
def test_an_edit_on_top_of_a_recipe_that_leaves_no_marks(cli, site, where, also):
    """What it took out comes back, and the edit stays."""
    file = site / "sglang" / DEEPSEEK
    before = file.read_bytes()
    names = ("remove-aux-capture", *also)
    assert cli("apply", *names, "--target", site).code == 0
    patched = file.read_bytes()
    assert patched != before
    lines = patched.split(b"\n")
    at = len(lines) - 1 if where == "far" else 1500
    lines.insert(at, b"# a user's own line")
    file.write_bytes(b"\n".join(lines))
    said = cli("status", "--target", site)
    assert "DRIFTED" in said.out and "OVERWRITTEN" not in said.out
    assert cli("reapply", "--target", site).code == 0
    assert cli("revert", "--target", site).code == 0
    left = file.read_bytes().replace(b"# a user's own line\n", b"")
    assert left == before
