"""Who binds and who reads each name of a file: locals, globals and attributes."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from patchkit.recipe.debugcode.words import dotted

Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Variable:
    """``scope``: the function that a local belongs to, by id; 0 for others.

    An attribute is one variable in the whole file, whatever it is an attribute of.
    """

    kind: str
    name: str
    scope: int = 0


@dataclass(frozen=True)
class Access:
    """``statement``: the innermost one; for the test of an ``if``, the ``if``."""

    variable: Variable
    node: ast.AST
    statement: ast.stmt


@dataclass
class _Scope:
    node: ast.AST
    bound: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements right inside a statement (or the module)."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            yield block
    for arm in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield arm.body


def inside(node: ast.AST) -> Iterator[ast.stmt]:
    """Every statement inside ``node``, outer before inner."""
    for block in blocks(node):
        for one in block:
            yield one
            yield from inside(one)


class Names:
    """Every access of a file's names, by variable and by statement."""

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self.parent: dict[ast.stmt, ast.stmt | None] = {}
        self.function: dict[ast.stmt, ast.stmt | None] = {}
        self.loads: dict[Variable, list[Access]] = defaultdict(list)
        self.stores: dict[Variable, list[Access]] = defaultdict(list)
        self.loaded: dict[ast.stmt, list[Variable]] = defaultdict(list)
        self.stored: dict[ast.stmt, list[Variable]] = defaultdict(list)
        self.parameters: dict[Variable, ast.arg] = {}
        self.called: set[str] = set()
        #: the calls of what is called by a name, or by a method's name
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.variable: dict[ast.AST, Variable] = {}
        #: the statement of each access, as in ``Access``
        self.home: dict[ast.AST, ast.stmt] = {}
        #: what an imported name stands for, as a dotted path
        self.paths: dict[str, str] = {}
        self._scopes: list[_Scope] = []
        for one in tree.body:
            self._statement(one, None, None)

    def ancestors(self, statement: ast.stmt | None) -> Iterator[ast.stmt]:
        """The statement itself, and those around it."""
        while statement is not None:
            yield statement
            statement = self.parent[statement]

    def path(self, node: ast.AST) -> str:
        """The dotted path of a name or attribute, with import aliases resolved."""
        head, dot, rest = dotted(node).partition(".")
        return self.paths.get(head, head) + dot + rest

    # -- collecting ---------------------------------------------------------------

    def _statement(
        self, node: ast.stmt, parent: ast.stmt | None, function: ast.stmt | None
    ) -> None:
        self.parent[node] = parent
        self.function[node] = function
        if isinstance(node, Function):
            self._function(node)
            return
        if isinstance(node, ast.ClassDef):
            self._bind(node.name, node, node)
            for part in (*node.bases, *node.keywords, *node.decorator_list):
                self._expression(part, node)
            self._scopes.append(_Scope(node))
            for one in node.body:
                self._statement(one, node, function)
            self._scopes.pop()
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
            return
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            for name in node.names:
                self.stored[node].append(self._resolve(name))
            return
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.ExceptHandler):
                if part.type is not None:
                    self._expression(part.type, node)
                if part.name:
                    self._bind(part.name, part, node)
            elif isinstance(part, ast.match_case):
                self._expression(part.pattern, node)
                if part.guard is not None:
                    self._expression(part.guard, node)
            elif not isinstance(part, ast.stmt):
                self._expression(part, node)
        for block in blocks(node):
            for one in block:
                self._statement(one, node, function)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name, node, node)
        every = node.args
        given = [*every.posonlyargs, *every.args, *every.kwonlyargs]
        given += [one for one in (every.vararg, every.kwarg) if one]
        outer: list[ast.AST | None] = [*node.decorator_list, node.returns]
        outer += [*every.defaults, *every.kw_defaults]
        outer += [one.annotation for one in given]
        for part in outer:
            if part is not None:
                self._expression(part, node)
        scope = _Scope(node, {one.arg for one in given})
        for one in inside(node):
            if isinstance(one, (ast.Global, ast.Nonlocal)):
                scope.elsewhere |= set(one.names)
        _bound_in(node, scope.bound)
        scope.bound -= scope.elsewhere
        self._scopes.append(scope)
        for argument in given:
            self.parameters[Variable("local", argument.arg, id(node))] = argument
        for statement in node.body:
            self._statement(statement, node, node)
        self._scopes.pop()

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            self._bind(name, alias, node)
            if isinstance(node, ast.ImportFrom):
                self.paths[name] = f"{node.module or ''}.{alias.name}"
            elif alias.asname:
                self.paths[name] = alias.name

    def _resolve(self, name: str) -> Variable:
        for depth, scope in enumerate(reversed(self._scopes)):
            if isinstance(scope.node, ast.ClassDef):
                if depth == 0:
                    return Variable("attribute", name)
            elif name in scope.bound:
                return Variable("local", name, id(scope.node))
        return Variable("global", name)

    def _bind(self, name: str, node: ast.AST, statement: ast.stmt) -> None:
        self._store(self._resolve(name), node, statement)

    def _store(self, variable: Variable, node: ast.AST, statement: ast.stmt) -> None:
        self.variable[node] = variable
        self.home[node] = statement
        self.stores[variable].append(Access(variable, node, statement))
        self.stored[statement].append(variable)

    def _load(self, variable: Variable, node: ast.AST, statement: ast.stmt) -> None:
        self.variable.setdefault(node, variable)
        self.home[node] = statement
        self.loads[variable].append(Access(variable, node, statement))
        self.loaded[statement].append(variable)

    def _expression(self, node: ast.AST, statement: ast.stmt) -> None:
        if isinstance(node, ast.Name):
            variable = self._resolve(node.id)
            if not isinstance(node.ctx, ast.Load):
                self._store(variable, node, statement)
                return
            self._load(variable, node, statement)
            if variable.kind == "attribute":  # in a class body; may be a global
                self._load(Variable("global", node.id), node, statement)
            return
        if isinstance(node, ast.Attribute):
            variable = Variable("attribute", node.attr)
            if isinstance(node.ctx, ast.Load):
                self._load(variable, node, statement)
            else:
                self._store(variable, node, statement)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node.value.isidentifier():
                # in __all__ or a table of names: may be a reading of that name
                for kind in ("attribute", "global"):
                    variable = Variable(kind, node.value)
                    self.loads[variable].append(Access(variable, node, statement))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            self.called.add(node.func.id)
            self.calls[node.func.id].append(node)
            if node.func.id in ("getattr", "hasattr") and len(node.args) > 1:
                named = getattr(node.args[1], "value", None)
                self.loaded[statement].append(Variable("attribute", str(named)))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            self.called.add(node.func.attr)
            self.calls[node.func.attr].append(node)
        if isinstance(node, (*_COMPREHENSION, ast.Lambda)):
            scope = _Scope(node)
            if isinstance(node, ast.Lambda):
                scope.bound = {one.arg for one in ast.walk(node.args)
                               if isinstance(one, ast.arg)}  # fmt: skip
            else:
                for one in node.generators:
                    scope.bound |= {
                        name.id
                        for name in ast.walk(one.target)
                        if isinstance(name, ast.Name)
                    }
                # the first iterable is evaluated outside
                self._expression(node.generators[0].iter, statement)
            self._scopes.append(scope)
            for part in ast.iter_child_nodes(node):
                self._expression(part, statement)
            self._scopes.pop()
            return
        for part in ast.iter_child_nodes(node):
            self._expression(part, statement)


def _bound_in(node: ast.AST, bound: set[str]) -> None:
    """The names that a function binds, not those of functions inside it."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, (*Function, ast.ClassDef)):
            bound.add(part.name)
            continue
        if isinstance(part, (*_COMPREHENSION, ast.Lambda)):
            bound |= {
                one.target.id
                for one in ast.walk(part)
                if isinstance(one, ast.NamedExpr) and isinstance(one.target, ast.Name)
            }
            continue
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            bound.add(part.id)
        elif isinstance(part, ast.alias):
            bound.add(part.asname or part.name.split(".")[0])
        elif (isinstance(part, ast.ExceptHandler) and part.name) or (
            isinstance(part, (ast.MatchAs, ast.MatchStar)) and part.name
        ):
            bound.add(part.name)
        elif isinstance(part, ast.arguments):
            continue
        _bound_in(part, bound)
