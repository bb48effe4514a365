"""What patchkit asks of the user's own repository, and ``--commit``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit.errors import Refused
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
    except GitFailed:
        return None
    top, git_dir = output.decode().splitlines()
    return Checkout(Path(top).resolve(), Path(git_dir))


def head_blob(checkout: Checkout, path: str) -> bytes | None:
    """The committed contents of ``path`` (relative to the top), if any."""
    try:
        return git(["cat-file", "blob", f"HEAD:{path}"], where=checkout.top)
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
    """Raise Refused if the user's own git holds the index; never touch that lock."""
    lock = checkout.git_dir / "index.lock"
    if lock.exists():
        raise Refused(
            f"{lock} exists: git is at work in this checkout, or was killed there",
            hint="wait for it, or remove that file yourself if no git runs;"
            " patchkit never does",
        )


def commit(checkout: Checkout, paths: Sequence[str], message: str) -> str | None:
    """An ordinary commit of just ``paths`` on the user's branch; its id.

    ``None`` if they are as committed already. What else is staged stays staged. Hooks
    and signing are off. The user's identity is used if there is one. Raises Refused
    with git's own words.
    """
    from git.exc import GitCommandError  # see plumbing.repository

    with repository(checkout.top) as repo:
        try:
            present = [path for path in paths if (checkout.top / path).exists()]
            if present:
                repo.git.add("--force", "--intent-to-add", "--", *present)
            tracked = repo.git.ls_files("-z", "--", *paths).split("\0")
            paths = [path for path in paths if path in tracked]
            if not paths or not repo.git.status("--porcelain", "--", *paths):
                return None
            identity = {} if _has_identity(repo) else _IDENTITY
            repo.git.commit(
                "--quiet", "--only", "-m", message, "--", *paths, env=identity
            )
            return str(repo.head.commit.hexsha)
        except GitCommandError as problem:
            words = str(problem.stderr).strip().strip("'").strip()
            raise Refused(
                f"the files were written, but git would not commit them: {words}",
                hint="commit them yourself; the patch itself is complete",
            ) from None


_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", NAME), ("EMAIL", EMAIL))
}


def _has_identity(repo: Repo) -> bool:
    reader = repo.config_reader()
    return all(reader.has_option("user", option) for option in ("name", "email"))
