"""Runs patchkit under the shim: killed at its k-th change, or on a full disk.

Everything here lives in a worker process that was itself started with the shim
preloaded but idle, and that has imported patchkit. A command is then a fork of it
in a session of its own, which saves the start of the interpreter (and of LibCST)
thousands of times; ``real=True`` starts ``python -m patchkit`` instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
PR_SET_CHILD_SUBREAPER = 36
JOURNALS = (".patchkit", ".git")


def build_shim(folder: Path) -> Path:
    """The shim's path. Raises CannotBuild where it can't be made."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux"):
        raise CannotBuild("the crash suite preloads a library: Linux only")
    if compiler is None:
        raise CannotBuild("no C compiler (cc, gcc or clang) to build the shim with")
    folder.mkdir(parents=True, exist_ok=True)
    source, library = HERE / "shim.c", folder / "shim.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        aside = folder / f"shim-{os.getpid()}.so"
        flags = ["-Wall", "-Wextra", "-O1", "-shared", "-fPIC"]
        command = [compiler, *flags, "-o", aside, source, "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise CannotBuild(f"{compiler} can't build the shim: {done.stderr}")
        os.replace(aside, library)
    return library


class CannotBuild(Exception):
    """Why there is no crash suite here."""


@dataclass(frozen=True)
class Done:
    """How a command ended. ``calls``: changes it made or tried below the box."""

    code: int
    calls: int
    at: str
    talk: str

    @property
    def killed(self) -> bool:
        return self.code == -9


@dataclass(frozen=True)
class Box:
    """A folder that holds one tree (``case/tree``) and what commands do to it."""

    base: Path
    real: bool = False

    @property
    def case(self) -> Path:
        return self.base / "case"

    @property
    def tree(self) -> Path:
        return self.case / "tree"

    @property
    def journal(self) -> Path:
        inside = self.tree / ".git" / "patchkit"
        return inside if (self.tree / ".git").is_dir() else self.tree / ".patchkit"

    def clear(self) -> None:
        shutil.rmtree(self.case, ignore_errors=True)
        (self.case / "tmp").mkdir(parents=True)

    def keep(self, name: str) -> None:
        shutil.rmtree(self.base / name, ignore_errors=True)
        shutil.copytree(self.case, self.base / name, symlinks=True)

    def restore(self, name: str) -> None:
        shutil.rmtree(self.case)
        shutil.copytree(self.base / name, self.case, symlinks=True)

    def here(self, *arguments: str) -> None:
        """Run a command in this very process; it must succeed."""
        from patchkit.cli import run

        talk = io.StringIO()
        with contextlib.redirect_stdout(talk), contextlib.redirect_stderr(talk):
            code = run(list(arguments))
        assert code == 0, f"{arguments}: exit {code}\n{talk.getvalue()}"

    def run(self, *arguments: str, at: int = 0, mode: str = "kill") -> Done:
        """Run a command in a process group of its own; ``at`` 0: undisturbed."""
        counter, talk = self.base / "counter", self.base / "talk"
        counter.write_bytes(bytes(4096))
        child = os.fork()
        if child == 0:
            self._become(arguments, counter, talk, at, mode)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ChildProcessError):
            while True:  # killed children of the child's, which may still be dying
                os.waitpid(-1, 0)
        shared = counter.read_bytes()
        return Done(
            os.waitstatus_to_exitcode(status),
            struct.unpack("i", shared[:4])[0],
            shared[4:].split(b"\0")[0].decode().replace(f"{self.case}/", ""),
            talk.read_text(),
        )

    def _become(
        self, arguments: tuple[str, ...], counter: Path, talk: Path, at: int, mode: str
    ) -> NoReturn:
        code = 99
        try:
            os.setsid()
            opened = os.open(talk, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(opened, 1)
            os.dup2(opened, 2)
            os.chdir(self.base)
            if at:
                os.environ.update(
                    CRASH_AT=str(at),
                    CRASH_MODE=mode,
                    CRASH_UNDER=str(self.case),
                    CRASH_COUNTER=str(counter),
                )
            os.environ["TMPDIR"] = tempfile.tempdir = str(self.case / "tmp")
            if self.real:
                command = [sys.executable, "-m", "patchkit", *arguments]
                os.execv(sys.executable, command)
            from patchkit.cli import run

            code = run(list(arguments))
        finally:
            os._exit(code)


def snapshot(folder: Path, skip: tuple[str, ...] = JOURNALS) -> dict[str, Any]:
    """Each file and folder with mode and contents; ``skip``: names at the top."""
    found: dict[str, Any] = {}
    for root, folders, names in os.walk(folder):
        if Path(root) == folder:
            folders[:] = [one for one in folders if one not in skip]
        for name in [*folders, *names]:
            path = Path(root, name)
            info = path.lstat()
            data = path.read_bytes() if path.is_file() else None
            found[path.relative_to(folder).as_posix()] = (info.st_mode, data)
    return found


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """In words, for a failure's message."""
    names = sorted(found.keys() | wanted.keys())
    return ", ".join(
        name
        + (": left over" if name not in wanted else "")
        + (": gone" if name not in found else "")
        for name in names
        if found.get(name) != wanted.get(name)
    )


def preload() -> None:
    """Import what a command needs, once, before any fork; become the reaper."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    import git  # noqa: F401

    import patchkit.outcome
    import patchkit.report.change
    import patchkit.report.diff
    import patchkit.report.errors
    import patchkit.report.history
    import patchkit.report.status
    import patchkit.workspace.planner
    import patchkit.workspace.status
    import patchkit.workspace.writer  # noqa: F401
    from patchkit import engine
    from patchkit.report import change

    # pure functions, so nothing can be killed in them: compute each answer once
    engine.apply = _remembered(engine.apply)
    change.added_and_removed = _remembered(change.added_and_removed)


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    def remembered(*arguments: Any, **named: Any) -> Any:
        # a recipe's class is made anew each time the recipe is loaded
        key = tuple(
            one.recipe_name()
            if isinstance(one, type)
            else str(one)
            if isinstance(one, dict)
            else one
            for one in (*arguments, *named.values())
        )
        if key not in known:
            known[key] = function(*arguments, **named)
        return known[key]

    return remembered
