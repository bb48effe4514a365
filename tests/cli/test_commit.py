"""``--commit``: an ordinary commit of just our files on the user's branch."""

import pytest
from clikit import DEEPSEEK, FILES, LLAMA, TAP, edit, refused, unchanged
from support import git, snapshot

from patchkit.registry import tap_files

APPLY = ("apply", "debug-logging", "--commit", "--target")


def head(top):
    return git(top, "rev-parse", "HEAD").strip()


def committed(top):
    return set(git(top, "show", "--format=", "--name-only", "HEAD").split())


def test_a_commit_of_just_our_files_with_trailers(cli, checkout):
    before = head(checkout)
    said = cli(*APPLY, checkout)
    assert said.code == 0
    assert head(checkout) != before
    assert f"committed as {head(checkout)[:12]}" in said.out
    files = committed(checkout)
    assert {f"python/sglang/{path}" for path in FILES} <= files
    assert all("patchkit_tap" in x or x[14:] in FILES for x in files)
    assert f"python/sglang/{TAP}/__init__.py" in files
    message = git(checkout, "log", "-1", "--format=%B")
    count = 3 + len(tap_files())
    subject = f"Apply debug-logging on SGLang 0.5.9 ({count} files)\n"
    assert message.startswith(subject)
    assert "Patchkit-Recipe: debug-logging" in message
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "rev-list", "--count", "HEAD") == "2\n"
    assert cli("status", "--check", "--target", checkout).code == 0


@pytest.mark.parametrize("where", ["repository", "home"])
def test_the_users_own_name(cli, checkout, tmp_path, monkeypatch, where):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = checkout / ".git/config" if where == "repository" else ".gitconfig"
    with open(tmp_path / config, "a") as file:
        file.write("[user]\n\tname = Some One\n\temail = one@example.org\n")
    assert cli(*APPLY, checkout).code == 0
    assert git(checkout, "log", "-1", "--format=%an <%ae> %cn") == (
        "Some One <one@example.org> Some One\n"
    )


def test_the_users_name_in_the_environment(cli, checkout, monkeypatch):
    """As continuous integration sets it."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A Robot")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "robot@example.org")
    assert cli(*APPLY, checkout).code == 0
    assert git(checkout, "log", "-1", "--format=%an <%ae> %cn") == (
        "A Robot <robot@example.org> A Robot\n"
    )


def test_no_name_at_all(cli, checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("EMAIL", raising=False)
    said = cli(*APPLY, checkout)
    assert said.code == 0, said.err
    assert git(checkout, "log", "-1", "--format=%an") == "patchkit\n"


def test_converted_line_ends(cli, checkout):
    """core.autocrlf=true: CRLF in the tree, and still LF in the commit."""
    git(checkout, "config", "core.autocrlf", "true")
    for path in FILES:
        (checkout / "python/sglang" / path).unlink()
    git(checkout, "checkout", "-q", "--", ".")
    said = cli(*APPLY, checkout)
    assert said.code == 0, said.err
    assert b"\r\n" in (checkout / "python/sglang" / LLAMA).read_bytes()
    blob = git(checkout, "cat-file", "blob", f"HEAD:python/sglang/{LLAMA}")
    assert "# patchkit" in blob and "\r" not in blob
    edit(checkout / "python/sglang" / LLAMA, "# idle batch", "# mine")
    refused(cli("revert", "--commit", "--target", checkout), 3, "uncommitted edits")


def test_revert_with_a_commit(cli, checkout):
    before = snapshot(checkout)
    assert cli(*APPLY, checkout).code == 0
    said = cli("revert", "--commit", "--target", checkout)
    assert said.code == 0
    assert snapshot(checkout) == before
    assert git(checkout, "log", "-1", "--format=%s").startswith("Revert debug-logging")
    assert git(checkout, "diff", "HEAD~2", "--stat") == ""
    assert git(checkout, "status", "--porcelain") == ""


def test_what_is_staged_stays_staged(cli, checkout):
    other = checkout / "python/sglang/version.py"
    other.write_bytes(other.read_bytes() + b"# staged\n")
    (checkout / "new.txt").write_text("new")
    git(checkout, "add", "-A")
    other.write_bytes(other.read_bytes() + b"# not staged\n")
    before = git(checkout, "diff", "--cached")
    said = cli(*APPLY, checkout)
    assert said.code == 0
    assert not committed(checkout) & {"new.txt", "python/sglang/version.py"}
    assert git(checkout, "diff", "--cached") == before
    assert "+# not staged" in git(checkout, "diff")


@pytest.mark.parametrize("staged", [False, True])
def test_edits_of_the_users_in_a_target_file_are_refused(cli, checkout, staged):
    edit(checkout / "python/sglang" / LLAMA, "# idle batch", "# mine")
    if staged:
        git(checkout, "add", "-A")
    before = head(checkout)
    with unchanged(checkout):
        said = cli(*APPLY, checkout)
    refused(said, 3, LLAMA, "uncommitted edits of yours", "commit or stash")
    assert head(checkout) == before


def test_edits_on_top_of_an_applied_patch_are_refused(cli, patched_checkout):
    edit(patched_checkout / "python/sglang" / LLAMA, "# idle batch", "# mine")
    with unchanged(patched_checkout):
        said = cli(*APPLY, patched_checkout)
    refused(said, 3, LLAMA, "uncommitted edits of yours")


def test_edits_that_an_apply_has_merged_are_refused(cli, patched_checkout):
    """They are in the journal by now, but still the user's and not committed."""
    edit(patched_checkout / "python/sglang" / LLAMA, "# idle batch", "# mine")
    assert cli("apply", "debug-logging", "--target", patched_checkout).code == 0
    with unchanged(patched_checkout):
        said = cli(*APPLY, patched_checkout)
    refused(said, 3, LLAMA, "uncommitted edits of yours")


def test_committed_edits_are_no_obstacle_to_apply(cli, checkout):
    edit(checkout / "python/sglang" / LLAMA, "# idle batch", "# mine")
    git(checkout, "commit", "-qam", "mine")
    assert cli(*APPLY, checkout).code == 0
    assert "# mine" in (checkout / "python/sglang" / LLAMA).read_text()


def test_committed_edits_are_no_obstacle_to_revert(cli, checkout):
    assert cli(*APPLY, checkout).code == 0
    edit(checkout / "python/sglang" / DEEPSEEK, "# Adapted from:", "# mine:")
    git(checkout, "commit", "-qam", "mine too")
    assert cli("revert", "--commit", "--target", checkout).code == 0
    assert git(checkout, "diff", "--stat", "HEAD") == ""
    assert "# mine:" in (checkout / "python/sglang" / DEEPSEEK).read_text()


def test_an_index_lock_of_the_users_is_kept(cli, checkout):
    lock = checkout / ".git" / "index.lock"
    lock.write_text("")
    with unchanged(checkout):
        said = cli(*APPLY, checkout)
    refused(said, 3, str(lock), "patchkit never does")
    assert lock.exists()
    # without --commit the user's index is none of our business
    assert cli("apply", "debug-logging", "--target", checkout).code == 0


def test_no_checkout_to_commit_in(cli, site):
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 2, "--commit", "no git checkout")


def test_commit_after_an_apply_without(cli, patched_checkout):
    said = cli(*APPLY, patched_checkout)
    assert said.code == 0
    assert git(patched_checkout, "status", "--porcelain") == ""
    said = cli(*APPLY, patched_checkout)
    assert said.code == 0 and "committed" not in said.out
    assert git(patched_checkout, "rev-list", "--count", "HEAD") == "2\n"


def test_commit_in_the_middle_of_a_merge(cli, checkout):
    """git would refuse to commit single files then, once they were written."""
    git(checkout, "checkout", "-q", "-b", "other")
    (checkout / "a.txt").write_text("a")
    git(checkout, "add", "a.txt")
    git(checkout, "commit", "-qm", "a")
    git(checkout, "checkout", "-q", "main")
    git(checkout, "merge", "--no-ff", "--no-commit", "-q", "other")
    with unchanged(checkout):
        said = cli(*APPLY, checkout)
    refused(said, 3, "a merge is in progress", "git merge --continue")


def test_dry_run_commits_nothing(cli, checkout):
    with unchanged(checkout):
        assert cli(*APPLY, checkout, "--dry-run").code == 0
        assert cli(*APPLY, checkout, "--check").code == 1
