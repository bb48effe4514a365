"""Three-way merge by git itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

from patchkit.errors import Refused
from patchkit.journal.plumbing import GitFailed, git


class MergeConflict(Exception):
    """``text``: the conflicting regions, marked as git marks them."""

    def __init__(self, text: str):
        super().__init__("conflict")
        self.text = text


def merge(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """``ours`` with what changed from ``base`` to ``theirs``. Raises MergeConflict."""
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    try:
        with tempfile.TemporaryDirectory(prefix="patchkit-merge-") as folder:
            names = ("yours", "last-patched", "new")
            for name, data in zip(names, (ours, base, theirs), strict=False):
                (Path(folder) / name).write_bytes(data)
            labels = [word for name in names for word in ("-L", name)]
            try:
                # the exit status is the number of conflicts, at most 127
                return git(["merge-file", "-p", *labels, *names], where=Path(folder))
            except GitFailed:
                text = git(
                    ["merge-file", "-p", "--diff3", *labels, *names],
                    where=Path(folder),
                    allowed=tuple(range(128)),
                )
    except OSError as problem:
        raise Refused(
            f"your edits can't be merged: {problem.strerror} ({problem.filename});"
            " nothing was changed",
            hint="make room there, or set TMPDIR to a folder with room",
        ) from None
    raise MergeConflict(_regions(text.decode("utf-8", "replace")))


def _regions(text: str) -> str:
    shown, inside = [], False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("<<<<<<< "):
            inside = True
            shown.append(f"at line {number}:")
        if inside:
            shown.append(line)
        if line.startswith(">>>>>>> "):
            inside = False
    return "\n".join(shown)
