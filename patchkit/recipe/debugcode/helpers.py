"""The functions of a file that only look or print: calling them is no effect."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from patchkit.recipe.debugcode.effects import Effects, shown
from patchkit.recipe.debugcode.names import Function, Names, Variable, inside

if TYPE_CHECKING:
    from patchkit.recipe.debugcode.statements import Fact

#: Why a ``return`` is no debug code, unless in a function that is.
LEAVES = "it leaves the function"
_DECORATORS = frozenset(
    (
        *("staticmethod", "classmethod", "torch.no_grad", "torch.compiler.disable"),
        *("torch._dynamo.disable", "torch.inference_mode", "functools.lru_cache"),
    )
)


class Helpers:
    """``opaque``: statements not to look into, with the reason; ``declared``:
    functions that leave at once while the variable is unset, and so are debug code
    whatever they do."""

    def __init__(
        self,
        names: Names,
        effects: Effects,
        opaque: Mapping[ast.stmt, str],
        declared: Collection[ast.stmt],
        fact: Callable[[ast.stmt], Fact],
    ):
        self.names = names
        self.effects = effects
        self.opaque = opaque
        self.declared = declared
        self.fact = fact

    def find(self) -> None:
        """Assume all of them, until one has an effect; so that they may call each
        other."""
        effects = self.effects
        made: dict[Variable, ast.stmt] = {}
        for variable, stores in self.names.stores.items():
            statement = stores[0].statement
            if len(stores) == 1 and (
                isinstance(statement, Function) or _is_lambda(statement)
            ):
                made[variable] = statement
        effects.helpers = set(made)
        bad = effects.helpers
        while bad:
            effects.printing = self._printing(made)
            bad = {one for one in effects.helpers if self._reason(made[one])}
            effects.helpers = effects.helpers - bad
        effects.printing &= effects.helpers

    def _printing(self, made: Mapping[Variable, ast.stmt]) -> set[Variable]:
        effects = self.effects
        effects.printing = set()
        before = -1
        while before != len(effects.printing):
            before = len(effects.printing)
            for variable in effects.helpers - effects.printing:
                if made[variable] in self.declared or any(
                    isinstance(node, ast.Call) and effects.is_output(node) is True
                    for node in ast.walk(made[variable])
                ):
                    effects.printing.add(variable)
        return effects.printing

    def _reason(self, statement: ast.stmt) -> str:
        if not isinstance(statement, Function):
            value = getattr(statement, "value", None)
            return self.effects.reason(value, []) if value is not None else "none"
        if statement in self.declared:
            return ""
        if statement in self.opaque or isinstance(statement, ast.AsyncFunctionDef):
            return self.opaque.get(statement, "it is awaited")
        for decorator in statement.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self.names.path(called) not in _DECORATORS:
                return f"it is decorated with {shown(decorator)}"
        defaults = [*statement.args.defaults, *statement.args.kw_defaults]
        for default in filter(None, defaults):
            found = self.effects.reason(default, [])
            if found:
                return found
        for one in inside(statement):
            if self.names.function[one] is not statement:
                continue  # a function in it is judged by itself
            fact = self.fact(one)
            if fact.reason and fact.reason != LEAVES:
                return fact.reason
            for variable in fact.writes:
                if self._is_read_outside(variable, statement):
                    return f"it changes `{variable.name}`"
        return ""

    def _is_read_outside(self, variable: Variable, function: ast.stmt) -> bool:
        return any(
            function not in self.names.ancestors(one.statement)
            for one in self.names.loads.get(variable, ())
        )


def _is_lambda(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Lambda)
    )
