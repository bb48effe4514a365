"""The files that code opens to write, and which of them are debug logs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from patchkit.recipe.debugcode import words
from patchkit.recipe.debugcode.names import Names


class Files:
    """A file is a debug log if its path, or what is written into it, says so: shipped
    code writes files too."""

    def __init__(self, names: Names):
        self.names = names
        self._logs: dict[ast.Call, bool] = {}
        for statement in names.parent:
            for call, target in _bindings(statement):
                if self.opens(call):
                    self._logs[call] = self._is_log(call, target)

    def opens(self, node: ast.AST) -> bool:
        """``open(path, mode)`` in a mode that writes text or bytes."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            return False
        variable = self.names.variable.get(node.func)
        if node.func.id != "open" or variable is None or variable.kind != "global":
            return False
        if self.names.stores.get(variable):
            return False
        mode = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "mode")]
        return bool(mode) and all(
            isinstance(one, ast.Constant) and bool({*"wax"} & {*str(one.value)})
            for one in mode
        )

    def is_log(self, node: ast.expr) -> bool:
        """Whether this opens a debug log."""
        return isinstance(node, ast.Call) and self._logs.get(node, False)

    def opened(self, node: ast.expr) -> list[ast.expr]:
        """The calls of ``open`` that a name stands for; none if it may be another
        thing."""
        variable = self.names.variable.get(node)
        stores = self.names.stores.get(variable, []) if variable else []
        found: list[ast.expr] = []
        for one in stores:
            calls = [c for c, target in _bindings(one.statement) if target is one.node]
            if not calls or not self.opens(calls[0]):
                return []
            found += calls
        return found

    def _is_log(self, call: ast.Call, target: ast.expr | None) -> bool:
        said = words.subjects(call)
        variable = self.names.variable.get(target) if target is not None else None
        for access in self.names.loads.get(variable, ()) if variable else ():
            for node in ast.walk(access.statement):
                holds = isinstance(node, ast.Call) and any(
                    part is access.node for part in ast.walk(node)
                )
                if holds and isinstance(node, ast.Call):
                    said |= words.subjects(node)
        return bool(said & words.LOG_FILES)


def _bindings(statement: ast.stmt) -> Iterator[tuple[ast.Call, ast.expr | None]]:
    """The calls whose results a statement binds, and to what."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        yield statement.value, statement.targets[0]
    elif isinstance(statement, ast.AnnAssign):
        if isinstance(statement.value, ast.Call):
            yield statement.value, statement.target
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        for item in statement.items:
            if isinstance(item.context_expr, ast.Call):
                yield item.context_expr, item.optional_vars
