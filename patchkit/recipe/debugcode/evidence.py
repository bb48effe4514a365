"""Whether a variable was made for debugging, or may be the release's own."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from patchkit.recipe.debugcode import words
from patchkit.recipe.debugcode.effects import Effects
from patchkit.recipe.debugcode.names import (
    Access,
    Function,
    Names,
    Variable,
    inside,
)
from patchkit.recipe.debugcode.owners import is_own
from patchkit.recipe.debugcode.statements import Statements
from patchkit.recipe.debugcode.switch import mentions

_MADE = (
    *(ast.Call, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp),
    *(ast.JoinedStr, ast.Lambda, ast.Compare),
)


class Evidence:
    """Shipped code has locals, attributes and globals that nothing in their file
    reads: a print of one must not take it along. So that only debug code reads a
    variable is not enough."""

    def __init__(
        self,
        names: Names,
        effects: Effects,
        statements: Statements,
        lines: Sequence[str],
    ):
        self.names = names
        self.effects = effects
        self.statements = statements
        self.lines = lines
        #: what looks made for debugging but that other files may need, and why
        self.withheld: dict[Variable, str] = {}
        self._known: dict[Variable, bool] = {}

    def is_debug(self, variable: Variable) -> bool:
        if variable not in self._known:
            fine = self._judge(variable)
            why = self._needed_elsewhere(variable) if fine else ""
            if why:
                self.withheld[variable] = why
            self._known[variable] = fine and not why
        return self._known[variable]

    def _judge(self, variable: Variable) -> bool:
        stores = self.names.stores.get(variable, [])
        if not stores or variable in self.names.parameters:
            return False
        if any(self.statements.facts[one.statement].reason for one in stores):
            return False
        if variable.kind == "local":
            return words.names_debugging(variable.name) or any(
                self._makes(one) for one in stores
            )
        if any(
            isinstance(one.node, ast.Attribute) and not is_own(self.names, one.node)
            for one in stores
        ):
            return False
        if len(stores) == 1 and isinstance(stores[0].statement, Function):
            return self._is_debug_function(variable, stores[0].statement)
        if isinstance(stores[0].statement, (ast.Import, ast.ImportFrom)):
            return all(self._is_plain_import(one) for one in stores)
        return bool({"dbg", "debug"} & words.words(variable.name)) or any(
            self._is_driven(one) for one in stores
        ) or self._is_added_to(variable)  # fmt: skip

    def _needed_elsewhere(self, variable: Variable) -> str:
        stores = self.names.stores[variable]
        for one in stores:
            if isinstance(one.statement, (ast.Import, ast.ImportFrom)):
                why = self._keeps_import(one.statement)
                if why:
                    return why
        imported = isinstance(stores[0].statement, (ast.Import, ast.ImportFrom))
        if variable.kind == "local" or imported or variable.name.startswith("_"):
            return ""
        value = getattr(stores[0].statement, "value", None)
        makes_logger = isinstance(value, ast.Call) and (
            self.names.path(value.func) == "logging.getLogger"
        )
        if makes_logger or words.says_debug(variable.name):
            return ""
        return "other files may use it: its name does not begin with an underscore"

    def _keeps_import(self, statement: ast.Import | ast.ImportFrom) -> str:
        last = statement.end_lineno or statement.lineno
        if any("noqa" in line for line in self.lines[statement.lineno - 1 : last]):
            return "its comment says to keep it"
        paths = [one.name for one in statement.names]
        if isinstance(statement, ast.ImportFrom):
            paths = ["" if statement.level else statement.module or ""]
        if all(map(words.is_quiet_module, paths)):
            return ""
        return "importing it may do more than bind a name"

    def _makes(self, store: Access) -> bool:
        """A temporary that computes something, not one that names a part."""
        statement = store.statement
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            return True
        value = statement.value
        return value is None or isinstance(value, ast.Constant) or any(
            isinstance(one, _MADE) for one in ast.walk(value)
        )  # fmt: skip

    def _is_debug_function(self, variable: Variable, function: ast.stmt) -> bool:
        """It prints and returns nothing; or it is private to the file. A print that
        was put into a shipped function does not make it one."""
        returns = any(
            isinstance(one, ast.Return) and one.value is not None
            for one in inside(function)
        )
        if variable in self.effects.printing and not returns:
            return True
        return variable.kind == "global" and variable.name.startswith("_")

    def _is_plain_import(self, store: Access) -> bool:
        """At the top level, not under an ``if`` or ``try``."""
        return self.names.parent[store.statement] is None

    def _is_driven(self, store: Access) -> bool:
        """A counter, a latch, a switch or a log file: its value comes from debugging.

        A constant in ``__init__`` is not enough.
        """
        statement = store.statement
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Call) and (
            self.names.path(value.func) == "logging.getLogger"
        ):
            shipped = (
                self.effects.wanted.ships_logger and store.variable.name == "logger"
            )
            return not shipped
        if isinstance(value, ast.expr) and (
            mentions(value) or self.effects.is_open(value)
        ):
            return True
        function = self.names.function[statement]
        if function is None:
            return False
        if isinstance(statement, ast.AugAssign):
            return True
        if (
            store.variable.kind == "attribute"
            and getattr(function, "name", "") == "__init__"
        ):
            return False
        return any(
            store.variable in self.names.loaded[one]
            for one in self.names.ancestors(statement)
        )

    def _is_added_to(self, variable: Variable) -> bool:
        return any(
            self.statements.facts[one.statement].kind == "mutation"
            and self.names.function[one.statement] is not None
            for one in self.names.loads.get(variable, ())
        )
