"""Edits whole lines of a file, and tidies comments and blank lines around them.

LibCST gives a comment or blank line to the statement below it, so that taking out
statements does not restore the lines around them. Lines do.
"""

from __future__ import annotations

import ast
import io
import token
import tokenize
from collections.abc import Sequence

from patchkit.recipe.debugcode.words import comment_is_debug, comment_stays

_STARTS = {getattr(token, "FSTRING_START", -1), getattr(token, "TSTRING_START", -1)}
_ENDS = {getattr(token, "FSTRING_END", -1), getattr(token, "TSTRING_END", -1)}


def first_line(node: ast.stmt) -> int:
    """0-based, decorators counted in."""
    decorators = getattr(node, "decorator_list", ())
    lines: list[int] = [node.lineno, *(one.lineno for one in decorators)]
    return min(lines) - 1


def end_line(node: ast.stmt) -> int:
    """0-based, exclusive."""
    return node.end_lineno or node.lineno


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t\f"))]


def is_blank(line: str) -> bool:
    return not line.strip()


def is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


class Lines:
    """A file's physical lines, and what is to become of them."""

    def __init__(self, text: str):
        self.text = text
        self.old = text.splitlines(keepends=True)
        if any(one[-1:] not in ("\n",) for one in self.old[:-1]):
            self.old = [one + "\n" for one in text.split("\n")]
            self.old[-1] = self.old[-1][:-1]
            if not self.old[-1]:
                self.old.pop()
        self.newline = "\r\n" if self.old and self.old[0].endswith("\r\n") else "\n"
        self.new: list[str] = list(self.old)
        self.gone: set[int] = set()
        self.above: dict[int, list[str]] = {}
        #: where each line is in the result, both 1-based
        self.place: dict[int, int] = {}
        self._cuts: list[tuple[int, int, int, str]] = []
        self._strings: set[int] | None = None

    # -- places -------------------------------------------------------------------

    def column(self, line: int, offset: int) -> int:
        """The character at a UTF-8 offset, as ast counts."""
        return len(self.old[line].encode()[:offset].decode())

    def start(self, node: ast.stmt) -> int:
        return self.column(node.lineno - 1, node.col_offset)

    def stop(self, node: ast.stmt) -> int:
        return self.column(end_line(node) - 1, node.end_col_offset or 0)

    def indent(self, node: ast.stmt) -> str:
        return indent_of(self.old[first_line(node)])

    def begins_line(self, node: ast.stmt) -> bool:
        line = first_line(node)
        if line != node.lineno - 1:
            return True
        return is_blank(self.old[line][: self.start(node)])

    def ends_line(self, node: ast.stmt) -> bool:
        rest = self.old[end_line(node) - 1][self.stop(node) :].strip()
        rest = rest.removeprefix(";").strip()
        return not rest or rest.startswith("#")

    def is_elif(self, node: ast.stmt) -> bool:
        """Whether it is written as an arm of the ``if`` above."""
        line = self.old[node.lineno - 1]
        return isinstance(node, ast.If) and line.lstrip().startswith("elif")

    def in_strings(self) -> set[int]:
        """The lines that begin inside a string: their blanks are part of its value."""
        if self._strings is None:
            self._strings = set()
            depth: list[int] = []
            for one in tokenize.generate_tokens(io.StringIO(self.text).readline):
                first, last = one.start[0], one.end[0] - 1
                if one.type in _STARTS:
                    depth.append(first)
                elif one.type in _ENDS:
                    first = depth.pop()
                    self._strings |= {*range(first, last + 1)}
                elif one.type == token.STRING:
                    self._strings |= {*range(first, last + 1)}
        return self._strings

    # -- edits --------------------------------------------------------------------

    def delete(self, first: int, stop: int) -> None:
        self.gone |= {*range(first, stop)}

    def cut(self, line: int, first: int, stop: int, new: str = "") -> None:
        """Replace part of a line, counted in its old characters."""
        self._cuts.append((line, first, stop, new))

    def put(self, line: int, *new: str) -> None:
        """Put whole lines in front of a line."""
        mine = [one + self.newline for one in new]
        self.above.setdefault(line, []).extend(mine)

    def reindent(self, first: int, stop: int, old: str, new: str) -> None:
        for number in range(first, stop):
            line = self.new[number]
            if number in self.in_strings() or is_blank(line):
                continue
            if line.startswith(old):
                self.new[number] = new + line[len(old) :]

    def result(self) -> str:
        for line, first, stop, new in sorted(self._cuts, reverse=True):
            text = self.new[line]
            self.new[line] = text[:first] + new + text[stop:]
        self._take_comments()
        self._tidy_blank_lines()
        made: list[str] = []
        for number, text in enumerate(self.new):
            made += self.above.get(number, [])
            self.place[number + 1] = len(made) + 1
            if number not in self.gone:
                made.append(text)
        made += self.above.get(len(self.new), [])
        done = "".join(made)
        if self.text and not self.text.endswith("\n"):
            return done.removesuffix("\n").removesuffix("\r")
        return done

    # -- comments and blank lines -------------------------------------------------

    def _runs(self) -> list[tuple[int, int]]:
        """The stretches of deleted lines, first to last."""
        runs: list[tuple[int, int]] = []
        for number in sorted(self.gone):
            if runs and runs[-1][1] == number:
                runs[-1] = (runs[-1][0], number + 1)
            else:
                runs.append((number, number + 1))
        return runs

    def _take_comments(self) -> None:
        """The comments that belong to deleted lines go with them."""
        for first, stop in reversed(self._runs()):
            while (
                stop < len(self.old)
                and is_comment(self.old[stop])
                and comment_is_debug(self.old[stop])
                and stop not in self.above
            ):
                self.gone.add(stop)
                stop += 1
            indent = indent_of(self.old[first])
            top = first
            while top and is_comment(self.old[top - 1]) and (
                indent_of(self.old[top - 1]) == indent and top not in self.above
            ):  # fmt: skip
                top -= 1
            taken = False
            for number in range(top, first):
                # what follows on a line about debug code goes on about it
                taken = (taken or comment_is_debug(self.old[number])) and not (
                    comment_stays(self.old[number])
                )
                if taken:
                    self.delete(number, number + 1)

    def _tidy_blank_lines(self) -> None:
        """No more blank lines where lines were deleted than there were on one side;
        at the top level, two."""
        for first, stop in self._runs():
            if any(number in self.above for number in range(first, stop + 1)):
                continue
            before = self._blank(range(first - 1, -1, -1))
            after = self._blank(range(stop, len(self.old)))
            below = stop + len(after)
            while below in self.gone or (
                below < len(self.old) and is_blank(self.old[below])
            ):
                below += 1
            if below >= len(self.old) or not self._something_above(first):
                spare = [*before, *after]
            elif before and after:
                many = max(len(before), len(after))
                imports = all(
                    _is_import(self.old[one]) for one in (first, below)
                )  # fmt: skip
                if not indent_of(self.old[below]) and not imports:
                    many = max(many, min(len(before) + len(after), 2))
                spare = [*after, *before][: len(before) + len(after) - many]
            else:
                continue
            self.gone |= set(spare)

    def _blank(self, numbers: Sequence[int]) -> list[int]:
        found = []
        for number in numbers:
            if number in self.gone:
                continue
            if not is_blank(self.new[number]):
                break
            found.append(number)
        return found

    def _something_above(self, first: int) -> bool:
        return any(
            number not in self.gone and not is_blank(self.new[number])
            for number in range(first - 1, -1, -1)
        )


def _is_import(line: str) -> bool:
    return line.startswith(("import ", "from "))
