"""Unified diffs of bytes, as ``git apply`` and ``patch -p1`` take them. Pure."""

from __future__ import annotations

import difflib
from collections import Counter

from patchkit.source import physical_lines


def unified(before: bytes | None, after: bytes | None, path: str) -> bytes:
    """The diff of one file; ``None`` is a file that is not there."""
    if before == after:
        return b""
    old, new = _name(f"a/{path}"), _name(f"b/{path}")
    head = f"diff --git {old} {new}\n"
    if " " in path:
        # as git does: else both tools take what follows the space for a date
        old, new = old + "\t", new + "\t"
    if before is None:
        head, old = head + "new file mode 100644\n", "/dev/null"
    if after is None:
        head, new = head + "deleted file mode 100644\n", "/dev/null"
    # latin-1 maps every byte to one character and back
    old_lines, new_lines = (
        [line.decode("latin-1") for line in physical_lines(data or b"")]
        for data in (before, after)
    )
    body = []
    for line in difflib.unified_diff(old_lines, new_lines):
        if not line.endswith("\n"):
            line += "\n\\ No newline at end of file\n"
        body.append(line)
    if body:
        head += f"--- {old}\n+++ {new}\n"
    # a file's name need not be UTF-8
    named = head.encode("utf-8", "surrogateescape")
    return named + "".join(body[2:]).encode("latin-1")


def _name(path: str) -> str:
    """Quoted as git quotes names that would break its lines."""
    if not any(one in '"\\' or one < " " for one in path):
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    octal = (one if one >= " " else f"\\{ord(one):03o}" for one in escaped)
    return '"' + "".join(octal) + '"'


def added_and_removed(before: bytes | None, after: bytes | None) -> tuple[int, int]:
    """How many lines a change adds and removes, moved lines not counted.

    By counting, which takes a tenth of the time of a diff.
    """
    old, new = (Counter(physical_lines(data or b"")) for data in (before, after))
    return (new - old).total(), (old - new).total()
