"""Puts debug code behind the module constant."""

from __future__ import annotations

import ast

from patchkit.recipe.debugcode.constant import constant, unit
from patchkit.recipe.debugcode.found import DebugCode
from patchkit.recipe.debugcode.lines import Lines, end_line, first_line, is_comment
from patchkit.recipe.debugcode.names import Function, blocks
from patchkit.recipe.debugcode.words import comment_is_debug

_IMPORTS = (ast.Import, ast.ImportFrom)


class Gate:
    def __init__(self, code: DebugCode, text: str):
        self.code = code
        self.lines = Lines(text)
        self.runs = [
            run
            for block in self._blocks()
            for run in self._runs_of(block)
            if not all(map(self._is_free, run))
        ]

    def unowned(self) -> list[ast.stmt]:
        """Debug statements that share a line with other code."""
        first = [one[0] for one in self.runs if not self.lines.begins_line(one[0])]
        last = [one[-1] for one in self.runs if not self.lines.ends_line(one[-1])]
        return first + last

    def result(self) -> str:
        if not self.runs:
            return self.lines.text
        name = constant(self.code.names, self.lines)
        deep = unit(self.code.names, self.lines)
        for run in self.runs:
            first, stop = first_line(run[0]), end_line(run[-1])
            indent = self.lines.indent(run[0])
            head = [f"{indent}if {name}:"]
            inner = indent + deep
            if self.lines.is_elif(run[0]):
                head = [f"{indent}else:", f"{indent}{deep}if {name}:"]
                inner += deep
                line = self.lines.new[first]
                self.lines.new[first] = line.replace("elif", "if", 1)
            self.lines.put(first, *head)
            self.lines.reindent(first, stop, indent, inner)
        return self.lines.result()

    def _blocks(self) -> list[list[ast.stmt]]:
        found = [self.code.names.tree.body]
        for one in self.code.names.parent:
            if not self.code.is_covered(one):
                found += blocks(one)
        return found

    def _runs_of(self, block: list[ast.stmt]) -> list[list[ast.stmt]]:
        """The debug statements of a block that follow on each other."""
        runs: list[list[ast.stmt]] = []
        last: ast.stmt | None = None
        for one in block:
            if one in self.code.statements and not self._stays(one):
                if last is not None and self._joins(last, one):
                    runs[-1].append(one)
                else:
                    runs.append([one])
                last = one
            else:
                last = None
        return runs

    def _stays(self, node: ast.stmt) -> bool:
        """What is not put behind the constant at all."""
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            return True
        return self.code.names.function[node] is None and (
            isinstance(node, (*_IMPORTS, *Function))
        )

    def _is_free(self, node: ast.stmt) -> bool:
        """What costs nothing and does nothing, where it stands alone."""
        if isinstance(node, (*_IMPORTS, *Function)):
            return True
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            return False
        value = node.value
        if isinstance(value, ast.Call):
            made = self.code.names.path(value.func)
            return made == "logging.getLogger" or (
                not value.args and made in ("dict", "list", "set")
            )
        return (
            value is None
            or isinstance(value, (ast.Constant, ast.Lambda))
            or (isinstance(value, (ast.List, ast.Set)) and not value.elts)
            or (isinstance(value, ast.Dict) and not value.keys)
        )

    def _joins(self, last: ast.stmt, one: ast.stmt) -> bool:
        """Nothing between but comments on debug code: other lines are the release's,
        and a blank one of it would go with the gated code when that is removed."""
        return all(
            is_comment(line) and comment_is_debug(line)
            for line in self.lines.old[end_line(last) : first_line(one)]
        )
