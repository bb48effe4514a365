"""What the calls in a file give for a parameter."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from patchkit.recipe.debugcode.names import Function, Names, Variable

_NONE: tuple[str, list[str], set[str]] = ("", [], set())


class Handed:
    def __init__(self, names: Names):
        self.names = names
        #: scope -> the name that it is called by, its parameters by position, and all
        self._called: dict[int, tuple[str, list[str], set[str]]] = {}
        for one in names.parent:
            if isinstance(one, Function):
                given = _positional(one.args)
                if isinstance(names.parent[one], ast.ClassDef):
                    given = given[1:]
                self._called[id(one)] = one.name, given, _all(one.args)
            elif isinstance(one, ast.Assign) and isinstance(one.value, ast.Lambda):
                given = _positional(one.value.args)
                name = ast.unparse(one.targets[0])
                self._called[id(one.value)] = name, given, _all(one.value.args)

    def knows(self, variable: Variable) -> bool:
        """Whether it is a parameter of a function that has a name."""
        return variable.name in self._called.get(variable.scope, _NONE)[2]

    def values(self, parameter: Variable) -> Iterator[ast.expr]:
        name, given, every = self._called.get(parameter.scope, _NONE)
        if parameter.name not in every:
            return
        for call in self.names.calls.get(name, ()):
            if parameter.name in given:
                index = given.index(parameter.name)
                yield from call.args[index : index + 1]
            else:
                yield from call.args
            for keyword in call.keywords:
                if keyword.arg in (parameter.name, None):
                    yield keyword.value


def _positional(arguments: ast.arguments) -> list[str]:
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args)]


def _all(arguments: ast.arguments) -> set[str]:
    return {one.arg for one in ast.walk(arguments) if isinstance(one, ast.arg)}
