"""What a test is worth while ``EAGLE3_DEBUG`` is unset."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from patchkit.recipe.debugcode.names import Function, Names
from patchkit.recipe.debugcode.owners import is_owners
from patchkit.recipe.debugcode.words import VARIABLE

_OPERATORS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
_TEXT_METHODS = frozenset(
    ("lower", "upper", "strip", "casefold", "lstrip", "rstrip", "title")
)
_CASTS: Mapping[str, Callable[[Any], Any]] = {"bool": bool, "int": int, "str": str}


class _Unknown(Exception):
    """The value can't be told, or its evaluation would raise."""


def is_variable(text: object) -> bool:
    return isinstance(text, str) and (
        text == VARIABLE or text.startswith(VARIABLE + "_")
    )


def mentions(node: ast.AST) -> bool:
    """Whether the name of the environment variable stands in this code."""
    return any(
        isinstance(one, ast.Constant) and is_variable(one.value)
        for one in ast.walk(node)
    )


class Switch:
    """Evaluates tests as if the variable was not set."""

    def __init__(self, names: Names):
        self._names = names
        self._depth = 0

    def when_unset(self, test: ast.expr) -> bool | None:
        """Whether the test holds; None if it does not depend on the variable, or
        something that is evaluated before decides."""
        self._read = False
        try:
            value = bool(self._value(test))
        except _Unknown:
            return None
        return value if self._read else None

    def decisive(self, test: ast.expr) -> list[ast.expr]:
        """The parts of a test that are evaluated while the variable is unset."""
        if isinstance(test, ast.BoolOp):
            parts: list[ast.expr] = []
            for part in test.values:
                parts += self.decisive(part)
                known = self.when_unset(part)
                if known is isinstance(test.op, ast.Or):
                    break
            return parts
        return [test]

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return [self._value(one) for one in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self._value(node.operand)
        if isinstance(node, ast.BoolOp):
            return self._connective(node)
        if isinstance(node, ast.IfExp):
            return self._value(node.body if self._value(node.test) else node.orelse)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._comparison(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._bound(node)
        raise _Unknown

    def _connective(self, node: ast.BoolOp) -> Any:
        decides = isinstance(node.op, ast.Or)
        value: Any = None
        unknown = False
        for part in node.values:
            try:
                value = self._value(part)
            except _Unknown:
                unknown = True
                continue
            if bool(value) is decides:
                return value
        if unknown:
            raise _Unknown
        return value

    def _comparison(self, node: ast.Compare) -> Any:
        right = node.comparators[0]
        if (
            isinstance(node.ops[0], (ast.In, ast.NotIn))
            and isinstance(node.left, ast.Constant)
            and is_variable(node.left.value)
            and self._names.path(right) == "os.environ"
        ):
            self._read = True
            return isinstance(node.ops[0], ast.NotIn)
        return self._try(_OPERATORS[type(node.ops[0])], self._value(node.left), right)

    def _try(
        self, function: Callable[[Any, Any], Any], left: Any, right: ast.expr
    ) -> Any:
        try:
            return function(left, self._value(right))
        except TypeError:
            raise _Unknown from None

    def _call(self, node: ast.Call) -> Any:
        path = self._names.path(node.func)
        given = [*node.args, *(one.value for one in node.keywords)]
        asks = path in ("os.environ.get", "os.getenv")
        flag = path.rpartition(".")[2] == "get_bool_env_var"
        if (asks or flag) and given and isinstance(given[0], ast.Constant):
            if not is_variable(given[0].value):
                raise _Unknown
            self._read = True
            default = self._value(given[1]) if len(given) > 1 else None
            return str(default).lower() in ("1", "true") if flag else default
        if path in _CASTS and len(given) == 1:
            try:
                return _CASTS[path](self._value(given[0]))
            except (TypeError, ValueError):
                raise _Unknown from None
        if isinstance(node.func, ast.Attribute) and node.func.attr in _TEXT_METHODS:
            text = self._value(node.func.value)
            if isinstance(text, str) and not given:
                return getattr(text, node.func.attr)()
        if not given:
            return self._bound(node.func)
        raise _Unknown

    def _bound(self, node: ast.expr) -> Any:
        """The value of a name that is bound once, or of a function that returns; of an
        attribute only in the class that binds it."""
        variable = self._names.variable.get(node)
        stores = self._names.stores.get(variable, []) if variable else []
        if len(stores) != 1 or self._depth > 4 or variable in self._names.parameters:
            raise _Unknown
        if variable and variable.kind == "attribute" and not (
            is_owners(self._names, node, stores[0].node)
        ):  # fmt: skip
            raise _Unknown
        made = stores[0].statement
        if isinstance(made, (ast.Assign, ast.AnnAssign)):
            targets = made.targets if isinstance(made, ast.Assign) else [made.target]
            value = made.value if targets == [stores[0].node] else None
        elif isinstance(made, Function):
            body = [one for one in made.body if not is_text(one)]
            last = body[0] if len(body) == 1 else None
            value = last.value if isinstance(last, ast.Return) else None
        else:
            value = None
        if value is None:
            raise _Unknown
        self._depth += 1
        try:
            return self._value(value)
        finally:
            self._depth -= 1


def is_text(statement: ast.stmt) -> bool:
    """A docstring, or another constant that stands for itself."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
