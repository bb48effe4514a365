"""Cuts statements and items of comma lists out of a file; all other bytes stay.

LibCST gives a comment or blank line to the statement below it, so that taking out
statements does not restore the lines around them. Physical lines do.
"""

from __future__ import annotations

import ast
import io
import token
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.recipe.anchors import Ambiguous
from patchkit.source import marked_by, physical_lines

#: Nodes that have a place in the file.
Placed = ast.expr | ast.stmt | ast.arg | ast.keyword


@dataclass(frozen=True)
class Edit:
    """Bytes ``start`` to ``stop`` become ``new``."""

    start: int
    stop: int
    new: bytes = b""


class Source:
    """A file's text, its tree, and edits of it; each edit gives a new text."""

    def __init__(self, text: str):
        self.data = text.encode()
        self.tree = ast.parse(text)
        self.lines = physical_lines(self.data)
        self.offsets = [0]
        for line in self.lines:
            self.offsets.append(self.offsets[-1] + len(line))
        first = self.lines[0] if self.lines else b""
        self.newline = b"\r\n" if first.endswith(b"\r\n") else b"\n"

    def apply(self, *edits: Edit) -> str:
        """The new text; an edit inside another one is part of that."""
        data, low = self.data, len(self.data) + 1
        for one in sorted(edits, key=lambda one: (-one.stop, one.start)):
            if one.stop <= low:
                data = data[: one.start] + one.new + data[one.stop :]
                low = one.start
        return data.decode()

    # -- places ---------------------------------------------------------------------

    def span(self, node: Placed) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self.offsets[node.lineno - 1] + node.col_offset,
            self.offsets[node.end_lineno - 1] + node.end_col_offset,
        )

    def code(self, node: Placed) -> bytes:
        start, stop = self.span(node)
        return self.data[start:stop]

    def shown(self, line: int) -> str:
        """A line (1-based) for a message: its number is not that of the file, where
        parts of it have been cut."""
        return self.lines[line - 1].decode().strip()

    def indent(self, node: ast.stmt) -> bytes:
        line = self.lines[node.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def _owns_lines(self, first: int, last: int, start: int, stop: int) -> bool:
        """Whether nothing but a comma and a comment is beside bytes ``start`` to
        ``stop`` on lines ``first`` to ``last`` (0-based)."""
        before = self.data[self.offsets[first] : start].strip()
        after = self.data[stop : self.offsets[last + 1]].strip().lstrip(b",").strip()
        return not before and (not after or after.startswith(b"#"))

    # -- statements -------------------------------------------------------------------

    def delete(self, node: ast.stmt) -> Edit:
        """The statement, with the comments right above it."""
        return self._delete_lines(*self._with_comments(node))

    def delete_all(self, nodes: Sequence[ast.stmt]) -> list[Edit]:
        """The same for several, in order: neighbours go as one."""
        runs: list[tuple[int, int]] = []
        for node in nodes:
            first, last = self._with_comments(node)
            if runs and not b"".join(self.lines[runs[-1][1] + 1 : first]).strip():
                first = runs.pop()[0]
            runs.append((first, last))
        return [self._delete_lines(first, last) for first, last in runs]

    def _with_comments(self, node: ast.stmt) -> tuple[int, int]:
        first, last = self._lines_of(node)
        indent = self.indent(node)
        while first and self._is_glued(self.lines[first - 1], indent):
            first -= 1
        return first, last

    def _delete_lines(self, first: int, last: int) -> Edit:
        """Lines ``first`` to ``last`` (0-based); of the blank lines around them, those
        of one side stay."""
        above = first
        while above and not self.lines[above - 1].strip():
            above -= 1
        below = last + 1
        while below < len(self.lines) and not self.lines[below].strip():
            below += 1
        fewer = min(first - above, below - last - 1)
        opens = above > 0 and self.lines[above - 1].split(b"#")[0].rstrip()[-1:] == b":"
        if opens and first == above:
            fewer = below - last - 1
        return Edit(self.offsets[first], self.offsets[last + 1 + fewer])

    def _lines_of(self, node: ast.stmt) -> tuple[int, int]:
        """0-based, inclusive. Raises Ambiguous if other code shares these lines."""
        start, stop = self.span(node)
        assert node.end_lineno is not None
        if not self._owns_lines(node.lineno - 1, node.end_lineno - 1, start, stop):
            raise Ambiguous(f"other code on a line: {self.shown(node.lineno)}")
        return node.lineno - 1, node.end_lineno - 1

    @staticmethod
    def _is_glued(line: bytes, indent: bytes) -> bool:
        bare = line.lstrip()
        own = bare.startswith(b"#") and marked_by(line) is None
        return own and line[: len(line) - len(bare)] == indent

    def hoist(self, branch: ast.If, taken: bool) -> Edit:
        """``branch`` becomes the arm that is ``taken``; nothing if there is none.

        Raises Ambiguous for an ``elif``, and for arms on the line of their ``if``.
        """
        first, last = self._lines_of(branch)
        if not self._begins(branch.lineno, b"if"):
            raise Ambiguous(f"an unknown shape: {self.shown(branch.lineno)}")
        arm = branch.body if taken else branch.orelse
        if not arm:
            return self.delete(branch)
        top = arm[0].lineno
        if branch.body[0].lineno == branch.lineno or self._begins(top, b"else"):
            raise Ambiguous(f"a body on its first line: {self.shown(branch.lineno)}")
        if self._begins(top, b"elif"):
            kept = [self.lines[top - 1].replace(b"elif", b"if", 1)]
            kept += self.lines[top : last + 1]
        else:
            while not self._heads(top - 1):
                top -= 1
            end = arm[-1].end_lineno or top
            old, new = self.indent(arm[0]), self.indent(branch)
            kept = self._dedented(top - 1, end, old, new)
        return Edit(self.offsets[first], self.offsets[last + 1], b"".join(kept))

    def _begins(self, line: int, word: bytes) -> bool:
        return self.lines[line - 1].lstrip().startswith(word)

    def _heads(self, line: int) -> bool:
        """Whether a line (1-based) is neither blank nor a comment: above an arm, it is
        the last of the line ``if ...:`` or ``else:``."""
        bare = self.lines[line - 1].strip()
        return bool(bare) and not bare.startswith(b"#")

    def _dedented(self, head: int, end: int, old: bytes, new: bytes) -> list[bytes]:
        inside = self._inside_strings()
        return [
            new + line[len(old) :]
            if number not in inside and line.startswith(old)
            else line
            for number, line in enumerate(self.lines[head:end], head)
        ]

    def _inside_strings(self) -> set[int]:
        """The lines (0-based) that begin inside a string."""
        found: set[int] = set()
        begun: list[int] = []
        starts = {getattr(token, "FSTRING_START", -1)}
        ends = {getattr(token, "FSTRING_END", -1)}
        text = self.data.decode()
        for one in tokenize.generate_tokens(io.StringIO(text).readline):
            if one.type in starts:
                begun.append(one.start[0])
            elif one.type in ends:
                found |= {*range(begun.pop(), one.end[0])}
            elif one.type == token.STRING:
                found |= {*range(one.start[0], one.end[0])}
        return found

    # -- expressions ------------------------------------------------------------------

    def replace(self, node: Placed, new: bytes) -> Edit:
        return Edit(*self.span(node), new)

    def drop(self, spans: Sequence[tuple[int, int]], index: int) -> Edit:
        """Item ``index`` of a comma list whose items are at ``spans``."""
        start, stop = spans[index]
        first, last = self._line_at(start), self._line_at(stop)
        if self._owns_lines(first, last, start, stop):
            return Edit(self.offsets[first], self.offsets[last + 1])
        if index + 1 < len(spans):
            return Edit(start, spans[index + 1][0])
        return Edit(spans[index - 1][1] if index else start, stop)

    def drop_argument(self, call: ast.Call, one: ast.expr | ast.keyword) -> Edit:
        items: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        items.sort(key=lambda item: self.span(item)[0])
        return self.drop([self.span(item) for item in items], items.index(one))

    def drop_item(self, items: ast.Tuple, index: int) -> Edit:
        """Of two items, the other is left without its parentheses."""
        if len(items.elts) == 2:
            return self.replace(items, self.code(items.elts[1 - index]))
        return self.drop([self.span(one) for one in items.elts], index)

    def drop_parameter(self, function: ast.FunctionDef, name: str) -> Edit:
        """Raises Ambiguous unless it is a plain one."""
        given = function.args
        if given.posonlyargs or given.vararg or name not in [a.arg for a in given.args]:
            raise Ambiguous(f"{function.name} has no plain parameter {name}")
        values: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
        values += given.defaults
        pairs = list(zip(given.args, values))
        pairs += list(zip(given.kwonlyargs, given.kw_defaults))
        spans = [
            (self.span(one)[0], self.span(value if value is not None else one)[1])
            for one, value in pairs
        ]
        names = [one.arg for one, _ in pairs]
        return self.drop(spans, names.index(name))

    def _line_at(self, offset: int) -> int:
        number = 0
        while self.offsets[number + 1] <= offset:
            number += 1
        return number
