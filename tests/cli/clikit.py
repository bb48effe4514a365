"""What the command-line tests share: run a command, and look at what it left."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import run_patchkit

DEEPSEEK = "srt/models/deepseek_v2.py"
LOGITS = "srt/layers/logits_processor.py"
LLAMA = "srt/models/llama_eagle3.py"
FILES = (DEEPSEEK, LOGITS, LLAMA)
TAP = "srt/patchkit_tap"
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another")


@dataclass(frozen=True)
class Answer:
    """What a command said, and its exit code."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def words(self) -> str:
        """What it answered, however it was wrapped."""
        return " ".join(self.out.split())

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    def states(self) -> dict[str, str]:
        """From ``status --json``: recipe -> state, of debug-logging and of others that
        are applied."""
        found = {one["name"]: one["state"] for one in self.json["recipes"]}
        return {
            name: state
            for name, state in found.items()
            if state != "NOT APPLIED" or name == "debug-logging"
        }

    def file_states(self, recipe: str = "debug-logging") -> dict[str, str]:
        found = next(one for one in self.json["recipes"] if one["name"] == recipe)
        return {one["path"]: one["state"] for one in found["files"]}


def process(*arguments: str | Path, **options: Any) -> Answer:
    """The real command, in a process of its own."""
    done = run_patchkit(*arguments, **options)
    return Answer(done.returncode, done.stdout.encode(), done.stderr)


#: All that a command imports comes first: nobody may not read root's python.
_BECOME_NOBODY = f"""
import importlib, os, pkgutil, sys
import git, libcst.codemod, patchkit, patchkit.engine
from patchkit import cli
for package in ("", ".cli", ".journal", ".workspace", ".recipe", ".recipes"):
    holder = importlib.import_module("patchkit" + package)
    for one in pkgutil.iter_modules(holder.__path__, holder.__name__ + "."):
        if not one.ispkg and not one.name.endswith("__main__"):
            importlib.import_module(one.name)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
sys.exit(cli.run(sys.argv[1:]))
"""


def as_nobody(*arguments: str | Path) -> Answer:
    """The real command as a user without any rights of its own."""

    done = subprocess.run(
        [sys.executable, "-B", "-c", _BECOME_NOBODY, *map(str, arguments)],
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        cwd="/",
    )
    return Answer(done.returncode, done.stdout, done.stderr.decode())


def refused(answer: Answer, code: int, *words: str) -> None:
    """A sentence and a next step on stderr, nothing on stdout, no traceback."""
    shown = answer.err
    assert answer.code == code, f"exit {answer.code}: {shown}{answer.out}"
    assert "Traceback" not in shown
    assert "error: " in shown, shown
    assert "\nnext: " in shown or "Usage: patchkit" in shown, shown
    assert answer.raw == b"", answer.raw
    for word in words:
        assert word in shown, f"{word!r} is not in: {shown}"


def fingerprint(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below ``folder``, journals too: mode, mtime of files, contents.

    Left out: what looking leaves behind (git's index, the text in a lock file).
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.endswith((".git/index", "patchkit/lock")) or "__pycache__" in name:
            continue
        about = path.lstat()
        if path.is_symlink():
            found[name] = (about.st_mode, 0, os.readlink(path).encode())
        elif stat.S_ISREG(about.st_mode):
            found[name] = (about.st_mode, about.st_mtime_ns, path.read_bytes())
        else:
            found[name] = (about.st_mode, 0, b"")
    return found


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Nothing below ``folder`` is written, the journal's folder neither."""
    before = fingerprint(folder)
    yield
    after = fingerprint(folder)
    changed = {k for k in {*before, *after} if before.get(k) != after.get(k)}
    assert not changed, sorted(changed)


def edit(path: Path, old: str, new: str) -> None:
    """Replace the only place where ``old`` stands in a file."""
    data = path.read_bytes()
    assert data.count(old.encode()) == 1, data.count(old.encode())
    path.write_bytes(data.replace(old.encode(), new.encode()))


def plain(data: bytes) -> bytes:
    """Without our lines, by a reading of the mark that is not patchkit's own."""
    kept = [one for one in data.split(b"\n") if b"# patchkit: " not in one]
    return b"\n".join(kept)


#: A recipe that adds one marked line at the top of a function's body.
_RECIPE = '''
"""{doc}"""

from patchkit.recipe import Method, Recipe, insert_first


class Made(Recipe):
    version = {version}
    summary = "a recipe for tests"
    options = {{"text": ("hello", "what the line says")}}
    after = {after!r}
    edits = {{"{file}": (Method("site", "{owner}", "{function}", "change"),)}}

    def change(self, function):
        def build(depth):
            return self.lines([f"said = {{self.chosen['text']!r}}"])
{body}
'''


def write_recipe(
    folder: Path,
    name: str = "user-recipe",
    *,
    body: str = "return insert_first(function, build)",
    version: int = 1,
    file: str = LLAMA,
    owner: str = "LlamaModel",
    function: str = "forward",
    after: tuple[str, ...] = (),
) -> Path:
    """Write a user's recipe; ``body`` ends its one edit."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name.replace('-', '_')}.py"
    text = _RECIPE.format(
        doc=f"Recipe {name}.",
        version=version,
        file=file,
        owner=owner,
        function=function,
        after=after,
        body=textwrap.indent(textwrap.dedent(body), "        "),
    )
    path.write_text(text.lstrip())
    return path


def cli_error_lines(answer: Answer) -> list[str]:
    """The details of an error: one line for each file and anchor."""
    return [line for line in answer.err.splitlines() if line.startswith("  ")]
