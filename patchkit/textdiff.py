"""Unified diffs of bytes, as ``git apply`` and ``patch -p1`` take them. Pure."""

from __future__ import annotations

import difflib

from patchkit.source import physical_lines


def unified(before: bytes | None, after: bytes | None, path: str) -> bytes:
    """The diff of one file; ``None`` is a file that is not there."""
    if before == after:
        return b""
    head = f"diff --git a/{path} b/{path}\n"
    old, new = f"a/{path}", f"b/{path}"
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
    for line in difflib.unified_diff(old_lines, new_lines, "old", "new"):
        if not line.endswith("\n"):
            line += "\n\\ No newline at end of file\n"
        body.append(line)
    if body:
        body[:2] = [f"--- {old}\n", f"+++ {new}\n"]
    return head.encode() + "".join(body).encode("latin-1")


def added_and_removed(before: bytes | None, after: bytes | None) -> tuple[int, int]:
    """How many lines a change adds and removes."""
    lines = unified(before, after, "x").split(b"\n")[1:]
    body = [line for line in lines if not line.startswith((b"--- ", b"+++ "))]
    added = sum(line.startswith(b"+") for line in body)
    return added, sum(line.startswith(b"-") for line in body)
