"""Takes debug code out of a file."""

from __future__ import annotations

import ast

from patchkit.recipe.debugcode.constant import is_ours
from patchkit.recipe.debugcode.found import DebugCode
from patchkit.recipe.debugcode.lines import (
    Lines,
    end_line,
    first_line,
    is_blank,
    is_comment,
)
from patchkit.recipe.debugcode.names import blocks


class Removal:
    def __init__(self, code: DebugCode, text: str):
        self.code = code
        self.lines = Lines(text)

    def result(self) -> str:
        self._block(self.code.names.tree.body, None)
        return self.lines.result()

    def unowned(self) -> list[ast.stmt]:
        """Debug statements that can't be taken out: they end on a line on which
        another statement begins."""
        names = self.code.names
        home = {
            one: block
            for owner in (names.tree, *names.parent)
            for block in blocks(owner)
            for one in block
        }
        found = []
        for one in self.code.outermost():
            if self.lines.begins_line(one) and self.lines.ends_line(one):
                continue
            beside = [
                other
                for other in home[one]
                if first_line(other) < end_line(one)
                and first_line(one) < end_line(other)
            ]
            if any(end_line(other) - first_line(other) > 1 for other in beside):
                found.append(one)
        return found

    def _survives(self, statement: ast.stmt) -> bool:
        if statement in self.code.statements:
            return False
        if statement in self.code.dead and isinstance(statement, ast.If):
            return any(map(self._survives, statement.orelse))
        if statement in self.code.live and isinstance(statement, ast.If):
            return any(map(self._survives, statement.body))
        return True

    def _block(self, block: list[ast.stmt], owner: ast.stmt | None) -> None:
        """One list of statements: delete, resolve, or leave and look inside."""
        empty = owner is not None and not any(map(self._survives, block))
        if empty and owner is not None and self._drop_arm(block, owner):
            return
        if empty:
            first, last = block[0], block[-1]
            if self.lines.begins_line(first):
                self.lines.put(first_line(first), self.lines.indent(first) + "pass")
            else:
                line = first.lineno - 1
                stop = self.lines.stop(last)
                if end_line(last) != first.lineno:
                    stop = len(self.lines.old[line].rstrip())
                    self.lines.delete(first.lineno, end_line(last))
                self.lines.cut(line, self.lines.start(first), stop, "pass")
                return
        for index, one in enumerate(block):
            if not self._survives(one):
                self._delete(block, index)
            elif one in self.code.dead and isinstance(one, ast.If):
                self._resolve_dead(one)
            elif one in self.code.live and isinstance(one, ast.If):
                self._resolve_live(one)
            else:
                for inner in blocks(one):
                    self._block(inner, one)

    def _drop_arm(self, block: list[ast.stmt], owner: ast.stmt) -> bool:
        """Delete an ``else``, ``elif`` or ``finally`` with nothing left in it."""
        arms = [getattr(owner, "orelse", None)]
        if getattr(owner, "handlers", None):
            arms.append(getattr(owner, "finalbody", None))
        if not any(block is arm for arm in arms):
            return False
        head = self._head_of(block)
        self.lines.delete(head, end_line(block[-1]))
        return True

    def _head_of(self, block: list[ast.stmt]) -> int:
        """The line of ``else:``, ``finally:`` or ``elif ...:`` above a block."""
        line = first_line(block[0])
        if not self.lines.begins_line(block[0]) or self.lines.is_elif(block[0]):
            return line
        line -= 1
        while is_blank(self.lines.old[line]) or is_comment(self.lines.old[line]):
            line -= 1
        return line

    def _delete(self, block: list[ast.stmt], index: int) -> None:
        node = block[index]
        line = node.lineno - 1
        beside = [one for one in block if one.lineno - 1 == line]
        if len(beside) > 1 and any(map(self._survives, beside)):
            before = [one for one in block[:index] if one in beside]
            if any(map(self._survives, before)):
                first, stop = self.lines.stop(before[-1]), self.lines.stop(node)
            else:
                first, stop = self.lines.start(node), self.lines.start(block[index + 1])
            self.lines.cut(line, first, stop)
            return
        first_number = first_line(node)
        if is_ours(node) and first_number and is_blank(
            self.lines.old[first_number - 1]
        ):  # fmt: skip
            first_number -= 1
        self.lines.delete(first_number, end_line(node))

    # -- an ``if`` on the variable --------------------------------------------------

    def _resolve_dead(self, node: ast.If) -> None:
        """Its body goes, and what was its ``else`` takes its place."""
        head, indent = self._head_of(node.orelse), self.lines.indent(node)
        if self.lines.is_elif(node.orelse[0]):
            self.lines.delete(node.lineno - 1, head)
            if not self.lines.is_elif(node):
                at = self.lines.start(node.orelse[0])
                self.lines.cut(head, at, at + len("elif"), "if")
            self._block(node.orelse, None)
        elif self.lines.is_elif(node):
            self.lines.delete(node.lineno - 1, head)
            self._block(node.orelse, None)
        else:
            self.lines.delete(node.lineno - 1, head + 1)
            self._hoist(node.orelse, head + 1, indent)

    def _resolve_live(self, node: ast.If) -> None:
        """Its body takes its place, and its ``else`` goes."""
        first = first_line(node.body[0])
        while is_blank(self.lines.old[first - 1]) or is_comment(
            self.lines.old[first - 1]
        ):
            first -= 1
        if node.orelse:
            self.lines.delete(self._head_of(node.orelse), end_line(node))
        self.lines.delete(node.lineno - 1, first)
        if self.lines.is_elif(node):
            self.lines.put(node.lineno - 1, self.lines.indent(node) + "else:")
            self._block(node.body, None)
        else:
            self._hoist(node.body, first, self.lines.indent(node))

    def _hoist(self, block: list[ast.stmt], first: int, indent: str) -> None:
        deep = self.lines.indent(block[0])
        self.lines.reindent(first, end_line(block[-1]), deep, indent)
        self._block(block, None)
