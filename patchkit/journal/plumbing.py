"""Runs git with nothing inherited from the user's environment or configuration.

Two ways in. ``git`` is for what every command needs: importing GitPython alone takes
longer than ``patchkit status`` may, and ``git fast-import`` writes a whole journal
entry in one process. ``repository`` opens a GitPython ``Repo`` for the rest
(``patchkit log``, ``--commit``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from git import Repo

from patchkit import __version__
from patchkit.errors import CannotRun, PatchkitError

NAME, EMAIL = "patchkit", "patchkit@localhost"

_LINE_ENDS = "core.autocrlf"

#: Passed explicitly, because each of these changes what git does or stops it:
#: somebody's hooks and signing keys, line-end conversion, a monitor daemon, background
#: maintenance, a checkout owned by another user.
_SETTINGS = (
    ("safe.directory", "*"),
    ("core.hooksPath", "/dev/null"),
    (_LINE_ENDS, "false"),
    ("core.fsmonitor", "false"),
    ("core.quotePath", "false"),
    ("core.fsync", "committed,loose-object,reference"),
    ("commit.gpgSign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)


class GitFailed(PatchkitError):
    """git said no; ``message`` holds its last words."""

    exit_code = 4


def environment(*, users_line_ends: bool = False) -> dict[str, str]:
    """The environment for git: no ``GIT_*`` of the user's, no prompts, English.

    ``users_line_ends``: in the user's own repository core.autocrlf is theirs to say.
    Settings go in as ``GIT_CONFIG_*`` (git 2.31), which safe.directory accepts.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    kept.update(GIT_TERMINAL_PROMPT="0", GIT_OPTIONAL_LOCKS="0")
    settings = [
        pair for pair in _SETTINGS if not (users_line_ends and pair[0] == _LINE_ENDS)
    ]
    kept.update(LC_ALL="C.UTF-8", LANGUAGE="", GIT_CONFIG_COUNT=str(len(settings)))
    for number, (key, value) in enumerate(settings):
        kept[f"GIT_CONFIG_KEY_{number}"] = key
        kept[f"GIT_CONFIG_VALUE_{number}"] = value
    return kept


@contextmanager
def repository(path: Path, *, users_line_ends: bool = False) -> Iterator[Repo]:
    """A GitPython ``Repo`` that sees the same environment as ``git`` below.

    GitPython passes on ``os.environ``, so that is changed meanwhile.
    """
    from git import Repo  # half of what a whole `patchkit status` costs

    saved, clean = dict(os.environ), environment(users_line_ends=users_line_ends)
    os.environ.clear()
    os.environ.update(clean)
    try:
        repo = Repo(path)
        try:
            yield repo
        finally:
            repo.close()
    finally:
        os.environ.clear()
        os.environ.update(saved)


def git(
    arguments: Sequence[str | Path],
    *,
    where: Path | None = None,
    git_dir: Path | None = None,
    stdin: bytes | None = None,
    allowed: tuple[int, ...] = (0,),
    users_line_ends: bool = False,
) -> bytes:
    """Run git and return its raw output.

    Raises GitFailed for an exit status not in ``allowed``, CannotRun if there is no
    git.
    """
    command = ["git"]
    if where is not None:
        command += ["-C", str(where)]
    if git_dir is not None:
        command += [f"--git-dir={git_dir}"]
    command += [str(one) for one in arguments]
    # without -C, from a folder that surely is no repository
    cwd = None if where is not None else "/"
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            env=environment(users_line_ends=users_line_ends),
            cwd=cwd,
        )
    except FileNotFoundError:
        raise _no_git() from None
    if done.returncode not in allowed:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = next(
            (one for one in reversed(words) if one.startswith(("fatal", "error"))),
            words[-1] if words else f"exit status {done.returncode}",
        )
        raise GitFailed(f"git {_verb(arguments)} failed: {said}")
    return done.stdout


def require_git() -> None:
    """Raise CannotRun if there is no git, before anything is made for it."""
    if shutil.which("git") is None:
        raise _no_git()


def _no_git() -> CannotRun:
    return CannotRun(
        "there is no git on this machine", hint="install git 2.31 or newer"
    )


def _verb(arguments: Sequence[str | Path]) -> str:
    return str(next((one for one in arguments if not str(one).startswith("-")), ""))


def trailer_block(recipes: Sequence[tuple[str, int, str]]) -> str:
    """Trailers of a journal entry and of ``--commit``: one set a recipe."""
    lines = [f"Patchkit: {__version__}"]
    for name, version, options in recipes:
        lines.append(f"Patchkit-Recipe: {name}")
        lines.append(f"Patchkit-Version: {version}")
        if options:
            lines.append(f"Patchkit-Options: {options}")
    return "\n".join(lines)
