"""What can be read once: iterating over it takes it from who reads it next."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from patchkit.recipe.debugcode import words
from patchkit.recipe.debugcode.handed import Handed
from patchkit.recipe.debugcode.names import Access, Names, Variable

#: Annotations and names of parameters that are iterators.
_ANNOTATION = re.compile(r"\b(Iterable|Iterator|Generator)\b")
_NAMED = re.compile(r"^weights$|iter|generator|stream|loader")
#: Calls that make an iterator, by their last name.
_MAKES = frozenset(
    (
        *("iter", "map", "filter", "zip", "reversed", "enumerate", "chain", "islice"),
        *("parameters", "named_parameters", "modules", "named_modules", "children"),
        *("named_children", "buffers", "named_buffers", "finditer", "scandir", "count"),
    )
)


class Iterators:
    """``only_looks``: whether a call returns something and does no more."""

    def __init__(self, names: Names, only_looks: Callable[[ast.Call], bool]):
        self.names = names
        self.handed = Handed(names)
        self.only_looks = only_looks

    def uses_up(self, node: ast.expr) -> str:
        """Why iterating over ``node`` may take something from who reads it next."""
        if isinstance(node, (ast.BoolOp, ast.IfExp, ast.Starred)):
            parts = [p for p in ast.iter_child_nodes(node) if isinstance(p, ast.expr)]
            return next(filter(None, map(self.uses_up, parts)), "")
        variable = self.names.variable.get(node)
        if variable is not None and self._is_once(variable, set()):
            return f"it may use up the iterator `{variable.name}`"
        return ""

    def _is_once(self, variable: Variable, seen: set[Variable]) -> bool:
        if variable in seen:
            return False
        seen.add(variable)
        for one in self.handed.values(variable) if variable.scope else ():
            other = self.names.variable.get(one)
            once = other is not None and self._is_once(other, seen)
            if once or isinstance(one, ast.GeneratorExp):
                return True
            if isinstance(one, ast.Call) and self._makes(one, variable):
                return True
        parameter = self.names.parameters.get(variable)
        if parameter is not None:
            if parameter.annotation is None:
                return bool(_NAMED.search(variable.name))
            if _ANNOTATION.search(ast.unparse(parameter.annotation)):
                return True
        elif variable.kind == "attribute" and _NAMED.search(variable.name):
            return True
        return any(
            self._binds_one(one, seen) for one in self.names.stores.get(variable, ())
        )

    def _binds_one(self, store: Access, seen: set[Variable]) -> bool:
        value = getattr(store.statement, "value", None)
        if isinstance(value, ast.GeneratorExp):
            return True
        if isinstance(value, ast.Call):
            return self._makes(value, store.variable)
        if isinstance(value, (ast.Name, ast.Attribute)):
            other = self.names.variable.get(value)
            return other is not None and self._is_once(other, seen)
        return False

    def _makes(self, call: ast.Call, bound: Variable) -> bool:
        if words.last_name(call.func) in _MAKES:
            return True
        # what a call returns may be a generator, but hidden states are tensors
        return not words.is_tensor_name(bound.name) and not self.only_looks(call)
