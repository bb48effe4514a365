"""diff."""

from __future__ import annotations

from patchkit.model import TAP_FOLDER
from patchkit.report.style import Style

_HEAD = "diff --git "


def diff_text(diff: bytes, style: Style) -> str:
    text = diff.decode("utf-8", "replace")
    if not style.colour:
        return text
    return "".join(_diff_line(line, style) for line in text.splitlines(keepends=True))


def fold_tap(diff: bytes) -> tuple[bytes, int]:
    """``diff`` without the files of the tap's own, and how many these are."""
    head = _HEAD.encode()
    files = [head + one for one in (b"\n" + diff).split(b"\n" + head)[1:]]
    mine = f"/{TAP_FOLDER}/".encode()
    kept = [one for one in files if mine not in one.split(b"\n", 1)[0]]
    ended = [one if one.endswith(b"\n") else one + b"\n" for one in kept]
    return b"".join(ended), len(files) - len(kept)


def _diff_line(line: str, style: Style) -> str:
    body = line.rstrip("\r\n")
    end = line[len(body) :]
    if body.startswith((_HEAD, "--- ", "+++ ", "new file", "deleted file")):
        return style(body, "bold") + end
    colour = {"+": "green", "-": "red", "@": "cyan"}.get(body[:1], "")
    return style(body, colour) + end
