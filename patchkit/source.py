"""Source files as bytes and physical lines: encodings, line ends, marks. Pure."""

from __future__ import annotations

import codecs
import io
import re
import tokenize
from dataclasses import dataclass

MARK = "# patchkit: "
#: A marked line: ours, or a trailing comment after our code.
_MARKED = re.compile(rb"#[ \t]*patchkit:[ \t]*([a-z0-9][a-z0-9-]*)[ \t]*\r?\n?\Z")
#: Python's physical lines end at \n, \r\n or \r, and nowhere else (str.splitlines
#: also breaks at form feeds and at U+2028).
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


class BadSource(Exception):
    """A file that can't be edited safely; the message says why."""


@dataclass(frozen=True)
class Text:
    """A decoded source file. ``head`` is its byte-order mark, or nothing."""

    text: str
    encoding: str
    head: bytes
    newline: str

    def encode(self, text: str) -> bytes:
        return self.head + text.encode(self.encoding)


def mark(recipe: str) -> str:
    """The trailing comment on each line that ``recipe`` inserts."""
    return MARK + recipe


def physical_lines(data: bytes) -> list[bytes]:
    """The lines of ``data`` with their line ends."""
    return _LINE.findall(data)


def marked_by(line: bytes) -> str | None:
    """The recipe that marked this physical line, if any."""
    if b"patchkit:" not in line:
        return None
    found = _MARKED.search(line)
    return found.group(1).decode() if found else None


def mark_names(data: bytes) -> tuple[str, ...]:
    """The recipes whose marks are in ``data``."""
    if b"patchkit:" not in data:
        return ()
    names = {marked_by(line) for line in physical_lines(data)}
    return tuple(sorted(name for name in names if name))


def marked_lines(data: bytes) -> list[bytes]:
    return [line for line in physical_lines(data) if marked_by(line)]


def strip_marks(data: bytes, recipe: str | None = None) -> bytes:
    """``data`` without the lines that ``recipe`` (default: any recipe) inserted."""
    if b"patchkit:" not in data:
        return data
    kept = []
    for line in physical_lines(data):
        name = marked_by(line)
        if name is None or (recipe is not None and name != recipe):
            kept.append(line)
    return b"".join(kept)


def decode(data: bytes) -> Text:
    """Decode a Python source file so that encoding it again gives the same bytes.

    Raises BadSource for what Python itself would not read, and for files that no
    edit could be made in without changing other bytes (lone CR line ends).
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as problem:
        raise BadSource(f"its encoding can't be told: {problem.msg}") from None
    head = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    encoding = "utf-8" if encoding == "utf-8-sig" else encoding
    body = data[len(head) :]
    try:
        text = body.decode(encoding)
        faithful = text.encode(encoding) == body
    except (UnicodeError, LookupError) as problem:
        raise BadSource(f"not valid {encoding}: {problem}") from None
    if not faithful or "x\n".encode(encoding) != b"x\n":
        raise BadSource(f"encoding {encoding} can't be written back unchanged")
    if "\0" in text:
        raise BadSource("it contains NUL bytes, so it is not Python source")
    if re.search(r"\r(?!\n)", text):
        raise BadSource("it has line ends of a lone CR, which can't be edited safely")
    newline = "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"
    return Text(text, encoding, head, newline)
