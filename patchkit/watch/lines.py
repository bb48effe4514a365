"""A server's log, bytes to lines. Pure.

SGLang's own lines read ``[2026-11-30 23:40:51 TP0] text``, in all releases from 0.4.6
to 0.5.23 (``configure_logger``); milliseconds, and several ranks as in ``DP1 TP3``, are
optional. Progress bars, tracebacks and other libraries have no stamp.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

#: Characters of a line beyond which it is cut: garbage need not end.
LONGEST = 65536

_STAMP = re.compile(
    r"\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?((?: [A-Z_]+\d+)*)\] ?"
)
#: What a terminal would obey: CSI, OSC and its like up to their end, two-letter ones.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: tqdm's bar once it is whole; it has no line end until the next one is drawn.
_WHOLE_BAR = re.compile(r".*\d+%.*\d+/\d+ \[[^\]]*\]\Z")


@dataclass(frozen=True)
class Line:
    """``stamp``: seconds since the epoch, as the line itself says, or ``None``.
    ``rank``: as in "TP0" or "DP1 TP3"; "" if it names none."""

    text: str
    stamp: float | None = None
    rank: str = ""


class Splitter:
    """Cuts a stream of bytes at LF and CR, whatever is in it."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[str]:
        """The lines that are whole by now; a progress bar counts when it is drawn."""
        *whole, rest = re.split(rb"[\r\n]", self._rest + data)
        if whole and self._skipping:
            whole[0] = b""
            self._skipping = False
        if len(rest) > LONGEST:
            if not self._skipping:
                whole.append(rest)
            self._skipping, rest = True, b""
        self._rest = rest
        found = [_decode(one) for one in whole]
        bar = _decode(rest)
        if _WHOLE_BAR.match(bar):
            self._rest = b""
            found.append(bar)
        return found

    def end(self) -> list[str]:
        """What is left when nothing more will come."""
        rest, self._rest = _decode(self._rest), b""
        return [rest] if rest.strip() else []


def _decode(raw: bytes) -> str:
    # a log that was truncated while it was open begins with a hole of NULs
    text = raw[:LONGEST].lstrip(b"\0").decode("utf-8", "replace")
    return printable(text)


def printable(text: str) -> str:
    """``text`` without what a terminal would obey; its line ends and tabs stay."""
    if not _CONTROLS.search(text):
        return text
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def parse(raw: str) -> Iterator[Line]:
    """The lines in one physical line: a bar may stand in front of another rank's."""
    marks = list(_STAMP.finditer(raw))
    before = raw[: marks[0].start()] if marks else raw
    if before.strip() or not marks:
        yield Line(before.rstrip())
    for index, mark in enumerate(marks):
        end = marks[index + 1].start() if index + 1 < len(marks) else len(raw)
        text = raw[mark.end() : end].rstrip()
        # a stamp quoted inside another line's text is no line of its own
        yield Line(text, _seconds(mark[1], mark[2] or ""), mark[3].strip())


def last_stamp(data: bytes) -> float | None:
    """Of the last line in ``data`` that has one."""
    for raw in reversed(Splitter().feed(data + b"\n")):
        stamps = [one.stamp for one in parse(raw) if one.stamp is not None]
        if stamps:
            return stamps[-1]
    return None


def _seconds(text: str, fraction: str) -> float | None:
    whole = _whole_seconds(text)
    if whole is None or not fraction:
        return whole
    return whole + float(f"0.{fraction}")


@lru_cache(maxsize=16)
def _whole_seconds(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text.replace("T", " "), "%Y-%m-%d %H:%M:%S"))
    except (ValueError, OverflowError):
        return None
