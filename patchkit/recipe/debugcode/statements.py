"""What each statement does, apart from printing."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from patchkit.recipe.debugcode import words
from patchkit.recipe.debugcode.effects import Effects, shown
from patchkit.recipe.debugcode.helpers import LEAVES, Helpers
from patchkit.recipe.debugcode.names import (
    Access,
    Function,
    Names,
    Variable,
    blocks,
    inside,
)
from patchkit.recipe.debugcode.owners import is_own

#: Builtins that return a number or a text.
_NEW = frozenset(("len", "int", "float", "str", "bool", "repr"))
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass
class Fact:
    """``reason``: why the statement (of a compound one: its head) can't be debug code;
    ``writes``: what it binds or adds to."""

    reason: str = ""
    sinks: list[ast.Call] = field(default_factory=list)
    writes: list[Variable] = field(default_factory=list)
    kind: str = ""


class Statements:
    """The facts of a file's statements. ``opaque``: statements not to look into, with
    the reason."""

    def __init__(
        self,
        names: Names,
        effects: Effects,
        opaque: Mapping[ast.stmt, str],
        declared: Collection[ast.stmt],
    ) -> None:
        self.names = names
        self.effects = effects
        self.opaque = opaque
        self.facts: dict[ast.stmt, Fact] = {}
        Helpers(names, effects, opaque, declared, self.fact).find()
        for one in names.parent:
            self.facts[one] = self.fact(one)

    def reason(self, statement: ast.stmt) -> str:
        """Why ``statement``, with all inside it, can't be debug code."""
        fact = self.facts[statement]
        if fact.reason or isinstance(statement, Function):
            return fact.reason
        for block in blocks(statement):
            for one in block:
                found = self.reason(one)
                if found:
                    return found
        return ""

    def outer(self, statement: ast.stmt) -> ast.stmt:
        """The outermost statement that a ``break`` here stays inside of."""
        for one in self.names.ancestors(self.names.parent[statement]):
            if isinstance(one, (*_LOOPS, *Function)):
                return one
        return statement

    # -- facts --------------------------------------------------------------------

    def fact(self, node: ast.stmt) -> Fact:
        fact = Fact(self.opaque.get(node, ""))
        if fact.reason:
            return fact
        if isinstance(node, ast.Expr):
            self._expression(node.value, fact)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self._assignment(node, fact)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            fact.kind = "import"
            fact.writes += self.names.stored[node]
            if isinstance(node, ast.ImportFrom) and (
                node.module == "__future__" or node.names[0].name == "*"
            ):
                fact.reason = "it is no ordinary import"
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            fact.kind = "declaration"
            fact.writes += self.names.stored[node]
        elif isinstance(node, ast.Pass):
            fact.kind = "pass"
        elif isinstance(node, (ast.Break, ast.Continue)):
            fact.kind = "jump"
        elif isinstance(node, ast.Return):
            fact.kind = "return"
            inner = node.value and self.effects.reason(node.value, fact.sinks)
            fact.reason = inner or LEAVES
        elif isinstance(node, Function):
            fact.kind = "function"
            variable = self.names.variable[node]
            fact.writes = [variable]
            if variable not in self.effects.helpers:
                fact.reason = f"`{node.name}` does more than look or print"
        else:
            self._compound(node, fact)
        return fact

    def _expression(self, node: ast.expr, fact: Fact) -> None:
        if isinstance(node, ast.Constant):
            fact.kind = "text"
            return
        container = self._mutated(node)
        if container is not None and isinstance(node, ast.Call):
            fact.kind = "mutation"
            fact.writes.append(container)
            for one in (*node.args, *(k.value for k in node.keywords)):
                fact.reason = fact.reason or self.effects.reason(one, fact.sinks)
                fact.reason = fact.reason or self.effects.uses_up(one)
            return
        if (
            isinstance(node, ast.Call)
            and self.names.path(node.func) == words.SYNCHRONIZE
            and not self.effects.is_output(node)
        ):
            fact.kind = "wait"
            return
        fact.reason = self.effects.reason(node, fact.sinks)

    def _mutated(self, node: ast.expr) -> Variable | None:
        """The container that a call of append, add, ... adds to, if it was made for
        that; one that stands for another object is not."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return None
        if node.func.attr not in words.MUTATORS:
            return None
        return self._container(node.func.value)

    def _container(self, node: ast.expr) -> Variable | None:
        if not is_own(self.names, node):
            return None
        variable = self.names.variable.get(node)
        if variable is None or variable in self.names.parameters:
            return None
        stores = self.names.stores.get(variable, [])
        fresh = [self._is_fresh(one) for one in stores]
        return variable if fresh and all(fresh) else None

    def _is_fresh(self, store: Access) -> bool:
        """Whether it binds a new object, which has no other name."""
        statement = store.statement
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = getattr(statement, "targets", None) or [statement.target]  # type: ignore[union-attr]
            value = statement.value
            if targets != [store.node]:
                return False
            if isinstance(value, (ast.Dict, ast.List, ast.Set, *_COMPREHENSIONS)):
                return True
            if isinstance(value, ast.Constant):
                return True
            if isinstance(value, ast.Call):
                made = self.names.path(value.func)
                return made in words.CONTAINERS or made in _NEW
        return False

    def _adds_in_place(self, node: ast.AugAssign) -> str:
        """Why ``+=`` may change an object that other code has too: it does for lists
        and tensors. It binds a new one only to what was made for it."""
        target = node.target
        if isinstance(target, ast.Subscript):
            return f"it changes {shown(target)} in place"
        variable = self.names.variable[target]
        made = [
            self._is_fresh(one)
            for one in self.names.stores[variable]
            if not isinstance(one.statement, ast.AugAssign)
        ]
        if variable in self.names.parameters or not made or not all(made):
            return f"it may change {shown(target)} in place"
        return self.effects.uses_up(node.value)

    def _assignment(
        self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, fact: Fact
    ) -> None:
        fact.kind = "assignment"
        if node.value is not None:
            fact.reason = self.effects.reason(node.value, fact.sinks)
        if isinstance(node, ast.AugAssign):
            fact.reason = fact.reason or self._adds_in_place(node)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, (ast.Tuple, ast.List)) and node.value is not None:
                fact.reason = fact.reason or self.effects.uses_up(node.value)
            self._target(target, fact)

    def _target(self, node: ast.expr, fact: Fact) -> None:
        if isinstance(node, (ast.Tuple, ast.List)):
            for one in node.elts:
                self._target(one, fact)
        elif isinstance(node, ast.Starred):
            self._target(node.value, fact)
        elif isinstance(node, ast.Subscript):
            container = self._container(node.value)
            inner = self.effects.reason(node.slice, fact.sinks)
            if container is None:
                inner = inner or f"it writes into {shown(node.value)}"
            else:
                fact.writes.append(container)
            fact.reason = fact.reason or inner
        elif is_own(self.names, node):
            fact.writes.append(self.names.variable[node])
        else:
            fact.reason = fact.reason or f"it writes to {shown(node)}"

    def _compound(self, node: ast.stmt, fact: Fact) -> None:
        fact.kind = "compound"
        heads: list[ast.expr] = []
        if isinstance(node, (ast.If, ast.While)):
            heads = [node.test]
            if isinstance(node, ast.While) and not self._counts(node):
                fact.reason = "it may wait for something"
        elif isinstance(node, ast.For):
            heads = [node.iter]
            fact.reason = self.effects.uses_up(node.iter)
            self._target(node.target, fact)
        elif isinstance(node, ast.With):
            for item in node.items:
                self._context(item, fact)
        elif isinstance(node, ast.Try):
            for one in node.handlers:
                heads += [one.type] if one.type else []
                if one.name:
                    fact.writes.append(self.names.variable[one])
        else:
            fact.reason = f"`{type(node).__name__.lower()}` is no debug code"
        for head in heads:
            fact.reason = fact.reason or self.effects.reason(head, fact.sinks)

    def _counts(self, node: ast.While) -> bool:
        """Whether the loop itself changes a local that its test reads."""
        changed = {v for one in inside(node) for v in self.names.stored[one]}
        return any(
            variable.kind == "local" and variable in changed
            for variable in self.names.loaded[node]
        )

    def _context(self, item: ast.withitem, fact: Fact) -> None:
        call = item.context_expr
        known = isinstance(call, ast.Call) and (
            self.effects.is_open(call) or self.names.path(call.func) in words.CONTEXTS
        )
        if isinstance(call, ast.Call) and self.effects.files.opens(call):
            fact.reason = fact.reason or self.effects.reason(call, fact.sinks)
        elif not known:
            fact.reason = fact.reason or f"{shown(call)} may do more than look"
        if item.optional_vars is not None and not fact.reason:
            self._target(item.optional_vars, fact)


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
