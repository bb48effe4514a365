"""What patchkit asks of the user's own repository, and ``--commit``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit.errors import CannotRun, Refused
from patchkit.journal.plumbing import EMAIL, NAME, GitFailed, git, repository

if TYPE_CHECKING:
    from git import Repo


@dataclass(frozen=True)
class Checkout:
    """A working tree that tracks the target's files."""

    top: Path
    git_dir: Path


def find_checkout(package: Path, landmark: str) -> Checkout | None:
    """The checkout that *tracks* the package, or ``None``.

    An ignored or untracked folder inside somebody's repository (a virtual
    environment, an unpacked wheel) is no checkout. ``git_dir`` is the working tree's
    own (per worktree).
    """
    if not any((folder / ".git").exists() for folder in (package, *package.parents)):
        return None
    try:
        output = git(
            ["rev-parse", "--show-toplevel", "--absolute-git-dir"], where=package
        )
        git(["ls-files", "--error-unmatch", "--", landmark], where=package)
    except GitFailed as problem:
        if any(one in problem.message for one in _NO_CHECKOUT):
            return None
        # anything else (a damaged index, say) must not move the journal elsewhere
        raise
    top, git_dir = os.fsdecode(output).splitlines()
    return Checkout(Path(top).resolve(), Path(git_dir))


_NO_CHECKOUT = ("not a git repository", "did not match any file", "work tree")


def staged(checkout: Checkout, paths: Sequence[str]) -> dict[str, bytes | None]:
    """Of ``paths``, those whose version in the index is not HEAD's, with that version
    (``None``: removed)."""
    changed = git(
        ["diff", "--cached", "--name-only", "-z", "HEAD", "--", *paths],
        where=checkout.top,
    )
    found: dict[str, bytes | None] = {}
    for path in filter(None, os.fsdecode(changed).split("\0")):
        try:
            found[path] = git(["cat-file", "blob", f":{path}"], where=checkout.top)
        except GitFailed:
            found[path] = None
    return found


def head_blob(checkout: Checkout, path: str) -> bytes | None:
    """The committed contents of ``path`` (relative to the top), if any.

    With CRLF where the file has it and git would have put it there (core.autocrlf).
    """
    try:
        blob = git(["cat-file", "blob", f"HEAD:{path}"], where=checkout.top)
        file = checkout.top / path
        if b"\r\n" in blob or not file.is_file() or b"\r\n" not in file.read_bytes():
            return blob
        return git(
            ["cat-file", "--filters", f"HEAD:{path}"],
            where=checkout.top,
            users_line_ends=True,
        )
    except GitFailed:
        return None


def was_committed(checkout: Checkout, path: str, data: bytes) -> bool:
    """Whether ``data`` is a committed version of ``path``, HEAD's or an earlier one.

    Looks at the last 200 commits that touched the path.
    """
    try:
        blob = git(
            ["hash-object", "--no-filters", "--stdin"], where=checkout.top, stdin=data
        )
        history = git(
            ["log", "-n200", "--format=", "--raw", "--no-abbrev", "HEAD", "--", path],
            where=checkout.top,
        )
    except GitFailed:
        return False
    return any(blob.strip() in line.split() for line in history.splitlines())


def refuse_commit_in_progress(checkout: Checkout) -> None:
    """Raise Refused if the user's own git is at work; never touch its lock."""
    lock = checkout.git_dir / "index.lock"
    if lock.exists():
        raise Refused(
            f"{lock} exists: git is at work in this checkout, or was killed there",
            hint="wait for it, or remove that file yourself if no git runs;"
            " patchkit never does",
        )
    for name in ("MERGE_HEAD", "CHERRY_PICK_HEAD"):
        if (checkout.git_dir / name).exists():
            what = name.removesuffix("_HEAD").lower().replace("_", "-")
            raise Refused(
                f"--commit: a {what} is in progress in this checkout, and git makes no"
                " commit of single files then",
                hint=f"finish it first (git {what} --continue, or --abort)",
            )


def commit(checkout: Checkout, paths: Sequence[str], message: str) -> str | None:
    """An ordinary commit of just ``paths`` on the user's branch; its id.

    ``None`` if they are as committed already. What else is staged stays staged. Hooks
    and signing are off. The user's identity is used if there is one. Raises CannotRun
    with git's own words (the files are written by then).
    """
    given = {name: os.environ[name] for name in _IDENTITY if name in os.environ}
    from git.exc import GitCommandError  # see plumbing.repository

    with repository(checkout.top, users_line_ends=True) as repo:
        try:
            present = [path for path in paths if (checkout.top / path).exists()]
            if present:
                repo.git.add("--force", "--intent-to-add", "--", *present)
            tracked = repo.git.ls_files("-z", "--", *paths).split("\0")
            paths = [path for path in paths if path in tracked]
            if not paths:
                return None
            if not repo.git.diff("--name-only", "HEAD", "--", *paths):
                # committed; but a kill may have kept git from updating its index
                repo.git.add("--", *paths)
                return None
            identity = ({} if _has_identity(repo) else _IDENTITY) | given
            repo.git.commit(
                "--quiet", "--only", "-m", message, "--", *paths, env=identity
            )
            return str(repo.head.commit.hexsha)
        except GitCommandError as problem:
            words = str(problem.stderr).strip().removeprefix("stderr:").strip(" '\n")
            raise CannotRun(
                "the files were written, but git would not commit them",
                hint="commit them yourself; the patch itself is complete",
                details=tuple(line for line in words.splitlines() if line.strip()),
            ) from None


_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", NAME), ("EMAIL", EMAIL))
}


def _has_identity(repo: Repo) -> bool:
    return all(
        repo.git.config("--get", f"user.{name}", with_exceptions=False)
        for name in ("name", "email")
    )
