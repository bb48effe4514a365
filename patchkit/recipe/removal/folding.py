"""Folds a class's code for variables that are known to be None."""

from __future__ import annotations

import ast
from collections import defaultdict

from patchkit.recipe.anchors import Ambiguous, AnchorMissing
from patchkit.recipe.removal.source import Edit, Source
from patchkit.recipe.removal.sweep import class_of, method_named


def fold_none(text: str, owner: str, seeds: dict[str, set[str]]) -> str:
    """``text`` with the methods of class ``owner`` written for names that are None.

    ``seeds``: method -> names. Tests of them are decided, arms not taken go, and they
    are no longer handed on: not to methods of the class, nor in tuples that these
    return; so do locals that were only ever None. Raises Ambiguous for a shape that
    can't be cut out of its lines.
    """
    known = defaultdict(set, {name: set(names) for name, names in seeds.items()})
    while True:
        source = Source(text)
        found = class_of(source.tree, owner)
        if found is None:
            return text
        edits = Folder(source, found, known).step()
        if not edits:
            return text
        text = source.apply(*edits)


def drop_none_parameter(text: str, owner: str, method: str, name: str) -> str:
    """``text`` with ``owner.method`` written as if parameter ``name`` was always None,
    and without it; ``text`` if it has no such parameter.

    Raises AnchorMissing without the method, Ambiguous if it uses ``name`` in a way that
    is not known.
    """
    function = method_named(class_of(ast.parse(text), owner), method)
    if function is None:
        raise AnchorMissing(f"no {owner}.{method} in this file", like=f"def {method}(")
    if name not in [one.arg for one in function.args.args]:
        return text
    source = Source(fold_none(text, owner, {method: {name}}))
    function = method_named(class_of(source.tree, owner), method)
    assert function is not None
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == name:
            raise Ambiguous(f"an unknown use of {name}: {source.shown(node.lineno)}")
    return source.apply(source.drop_parameter(function, name))


class Folder:
    """One step at a time, so that each sees what the last one left."""

    def __init__(
        self, source: Source, owner: ast.ClassDef, known: defaultdict[str, set[str]]
    ):
        self.source = source
        self.known = known
        self.methods = {
            one.name: one for one in owner.body if isinstance(one, ast.FunctionDef)
        }

    def step(self) -> list[Edit]:
        for function in self.methods.values():
            none = self.known[function.name] | _only_none(function)
            if not none:
                continue
            for act in (self._branch, self._choice, self._handed, self._returned):
                edits = act(function, none)
                if edits:
                    return edits
            edits = self._unread(function, none)
            if edits:
                return edits
        return []

    def _branch(self, function: ast.FunctionDef, none: set[str]) -> list[Edit]:
        for node in ast.walk(function):
            if isinstance(node, ast.If):
                taken = _decide(node.test, none)
                if taken is not None:
                    return [self.source.hoist(node, taken)]
        return []

    def _choice(self, function: ast.FunctionDef, none: set[str]) -> list[Edit]:
        """``a if test else b``, and operands of ``and`` and ``or``."""
        for node in ast.walk(function):
            if isinstance(node, ast.IfExp):
                taken = _decide(node.test, none)
                if taken is not None:
                    kept = node.body if taken else node.orelse
                    return [self.source.replace(node, self.source.code(kept))]
            elif isinstance(node, ast.BoolOp):
                for index, value in enumerate(node.values):
                    decided = _decide(value, none)
                    if decided is isinstance(node.op, ast.And):
                        left = [*node.values[:index], *node.values[index + 1 :]]
                        joint = b" and " if decided else b" or "
                        code = joint.join(map(self.source.code, left))
                        return [self.source.replace(node, code)]
        return []

    def _handed(self, function: ast.FunctionDef, none: set[str]) -> list[Edit]:
        """``self.method(..., name, ...)``: the argument and the parameter go."""
        for call in ast.walk(function):
            callee = self._callee(call)
            if callee is None or len(self._calls(callee.name)) != 1:
                continue
            assert isinstance(call, ast.Call)
            parameters = [one.arg for one in callee.args.args[1:]]
            for index, value in enumerate(call.args):
                if isinstance(value, ast.Name) and value.id in none:
                    return self._unhand(call, value, callee, parameters[index])
            for keyword in call.keywords:
                value = keyword.value
                if isinstance(value, ast.Name) and value.id in none and keyword.arg:
                    return self._unhand(call, keyword, callee, keyword.arg)
        return []

    def _unhand(
        self,
        call: ast.Call,
        value: ast.expr | ast.keyword,
        callee: ast.FunctionDef,
        name: str,
    ) -> list[Edit]:
        self.known[callee.name].add(name)
        return [
            self.source.drop_argument(call, value),
            self.source.drop_parameter(callee, name),
        ]

    def _returned(self, function: ast.FunctionDef, none: set[str]) -> list[Edit]:
        """An item that is None in each tuple that the method returns."""
        tuples = [
            node.value for node in ast.walk(function) if isinstance(node, ast.Return)
        ]
        calls = self._calls(function.name)
        if not tuples or not calls:
            return []
        unpacked = [(caller, self._unpacking(caller, call)) for caller, call in calls]
        items = [one for one in tuples if isinstance(one, ast.Tuple)]
        names = [target for _, target in unpacked if target is not None]
        every = [*items, *names]
        if len(every) != len(tuples) + len(calls):
            return []
        if len({len(one.elts) for one in every}) != 1:
            return []
        for index in range(len(items[0].elts)):
            values = [one.elts[index] for one in items]
            if all(isinstance(one, ast.Name) and one.id in none for one in values):
                for caller, target in unpacked:
                    assert target is not None
                    bound = target.elts[index]
                    if not isinstance(bound, ast.Name):
                        return []
                    self.known[caller.name].add(bound.id)
                return [self.source.drop_item(one, index) for one in every]
        return []

    def _unread(self, function: ast.FunctionDef, none: set[str]) -> list[Edit]:
        """``name = None`` (or another value that costs nothing) that nothing reads."""
        read = {
            one.id
            for one in ast.walk(function)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
        }
        for node in ast.walk(function):
            target = _assigned(node)
            if not target or target in read:
                continue
            value = getattr(node, "value", None)
            simple = isinstance(value, ast.Constant) or _decide(value, none) is not None
            mentions = isinstance(value, ast.AST) and _mentions(value, none)
            if (target in none and simple) or (simple and mentions):
                assert isinstance(node, ast.stmt)
                return [self.source.delete(node)]
        return []

    # -- calls inside the class -----------------------------------------------------

    def _callee(self, call: ast.AST) -> ast.FunctionDef | None:
        """The method that ``self.method(...)`` calls."""
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return None
        base = call.func.value
        if not isinstance(base, ast.Name) or base.id != "self":
            return None
        plain = not any(isinstance(one, ast.Starred) for one in call.args)
        return self.methods.get(call.func.attr) if plain else None

    def _calls(self, name: str) -> list[tuple[ast.FunctionDef, ast.Call]]:
        return [
            (function, node)
            for function in self.methods.values()
            for node in ast.walk(function)
            if isinstance(node, ast.Call)
            and (callee := self._callee(node)) is not None
            and callee.name == name
        ]

    @staticmethod
    def _unpacking(function: ast.FunctionDef, call: ast.Call) -> ast.Tuple | None:
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and node.value is call:
                target = node.targets[0]
                return target if isinstance(target, ast.Tuple) else None
        return None


def _assigned(node: ast.AST) -> str:
    """The one name that a statement assigns."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target: ast.expr = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return ""
    return target.id if isinstance(target, ast.Name) else ""


def _only_none(function: ast.FunctionDef) -> set[str]:
    """Locals that are assigned None, and nothing else anywhere."""
    bound = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    values: dict[str, list[bool]] = defaultdict(list)
    for node in ast.walk(function):
        name = _assigned(node)
        if name:
            value = getattr(node, "value", None)
            values[name].append(isinstance(value, ast.Constant) and value.value is None)
    stores = [
        one.id
        for one in ast.walk(function)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    ]
    return {
        name
        for name, kinds in values.items()
        if name not in bound and all(kinds) and stores.count(name) == len(kinds)
    }


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node))


def _decide(test: ast.AST | None, none: set[str]) -> bool | None:
    """What ``test`` is, if it depends on names that are None."""
    if isinstance(test, ast.Name):
        return False if test.id in none else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = _decide(test.operand, none)
        return None if value is None else not value
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        right = test.comparators[0]
        known = isinstance(test.left, ast.Name) and test.left.id in none
        if known and isinstance(right, ast.Constant) and right.value is None:
            return isinstance(test.ops[0], (ast.Is, ast.Eq))
        return None
    if isinstance(test, ast.BoolOp):
        parts = [_decide(one, none) for one in test.values]
        stops = isinstance(test.op, ast.Or)
        if stops in parts:
            return stops
        return None if None in parts else not stops
    if (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Name)
        and test.func.id == "isinstance"
        and test.args
    ):
        return _decide(test.args[0], none)
    return None
