"""Which methods only look, by what they are methods of."""

from __future__ import annotations

import ast

from patchkit.recipe.debugcode import words
from patchkit.recipe.debugcode.handed import Handed
from patchkit.recipe.debugcode.names import Access, Names, Variable

_IMPORTS = (ast.Import, ast.ImportFrom)
_LITERALS = (ast.Constant, ast.UnaryOp, ast.Tuple)
_NAMES_OF_MODULES = frozenset(
    ("self", "cls", "layer", "module", "model", "mod", "m", "head", "block")
)


class Methods:
    def __init__(self, names: Names):
        self.names = names
        self.handed = Handed(names)

    def only_looks(self, node: ast.Call, method: str, base: ast.expr) -> bool:
        given = node.args
        if isinstance(base, ast.Name):
            if self._is_imported(base):
                top = self.names.path(base)
                return top in ("torch", "numpy") and method in words.METHODS
            if base.id in ("self", "cls"):
                return method in words.ABOUT_MODULES or words.only_looks(method)
        if method in words.CONVERSIONS:
            return self.is_tensor(base)
        if method == "get":
            # a queue's has a flag or a time, and takes something out
            return bool(given) and not node.keywords and _is_key(given[0])
        if method == "join":  # a thread's waits
            return isinstance(base, (ast.Constant, ast.JoinedStr))
        if method in ("replace", "select"):  # a path's moves, a selector's waits
            return len(given) > 1
        if method == "norm" and not all(isinstance(x, _LITERALS) for x in given):
            return False  # a layer of that name, which may work in place
        return method in words.METHODS or words.only_looks(method)

    def _is_imported(self, node: ast.Name) -> bool:
        variable = self.names.variable.get(node)
        stores = self.names.stores.get(variable, []) if variable else []
        return bool(stores) and all(isinstance(x.statement, _IMPORTS) for x in stores)

    def is_tensor(
        self, node: ast.expr, seen: frozenset[Variable] = frozenset()
    ) -> bool:
        """Whether a conversion of ``node`` makes a copy: modules are converted in
        place. A module is called, or an attribute that is not named as a tensor."""
        if isinstance(node, ast.Attribute):
            return words.is_tensor_name(node.attr)
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.is_tensor(node.value, seen)
        if isinstance(node, ast.IfExp):
            return all(self.is_tensor(one, seen) for one in (node.body, node.orelse))
        if isinstance(node, ast.BoolOp):
            return all(self.is_tensor(one, seen) for one in node.values)
        if isinstance(node, ast.Call):
            made = words.last_name(node.func)
            if made in ("enumerate", "zip", "reversed", "list", "tuple", "iter"):
                return all(self.is_tensor(one, seen) for one in node.args)
            return not (
                made in words.ABOUT_MODULES
                or made.startswith("get")
                or made in ("next", "vars")
            )
        if isinstance(node, ast.Name):
            return self._names_tensor(node, seen)
        return True

    def _names_tensor(self, node: ast.Name, seen: frozenset[Variable]) -> bool:
        variable = self.names.variable.get(node)
        if node.id in self.names.called or node.id in _NAMES_OF_MODULES:
            return False
        if variable is None or variable in seen:
            return True
        seen |= {variable}
        stores = self.names.stores.get(variable, [])
        if self.handed.knows(variable):
            if not all(self.is_tensor(x, seen) for x in self.handed.values(variable)):
                return False
        elif not stores:
            return False
        return all(self._binds_tensor(one, seen) for one in stores)

    def _binds_tensor(self, store: Access, seen: frozenset[Variable]) -> bool:
        for node in ast.walk(store.statement):
            if isinstance(node, (ast.For, ast.comprehension)) and any(
                one is store.node for one in ast.walk(node.target)
            ):
                return self.is_tensor(node.iter, seen)
        value = getattr(store.statement, "value", None)
        return not isinstance(value, ast.expr) or self.is_tensor(value, seen)


def _is_key(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
