"""What nothing uses any more once code is taken out: attributes, locals, imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable

from patchkit.recipe.removal.source import Source


def class_of(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next(
        (
            node
            for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name == name
        ),
        None,
    )


def method_named(owner: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    members = owner.body if owner is not None else []
    return next(
        (
            node
            for node in members
            if isinstance(node, ast.FunctionDef) and node.name == name
        ),
        None,
    )


def self_attribute(node: ast.AST) -> str:
    """``x`` of ``self.x``; "" for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else ""
    return ""


def attributes_read(nodes: Iterable[ast.AST]) -> set[str]:
    """The attributes of ``self`` that ``nodes`` read."""
    return {
        self_attribute(one)
        for node in nodes
        for one in ast.walk(node)
        if isinstance(getattr(one, "ctx", None), ast.Load) and self_attribute(one)
    }


def names_read(node: ast.AST) -> set[str]:
    return {
        one.id
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    }


def drop_dead_state(text: str, owner: str, suspects: Collection[str]) -> str:
    """Without what ``owner.__init__`` sets up for ``suspects`` (attributes that code
    taken out did read) alone, if nothing else in the file reads them.

    What only fed these goes as well: attributes, locals, and branches.
    """
    source = Source(text)
    function = method_named(class_of(source.tree, owner), "__init__")
    if function is None:
        return text
    dead = _dead(source.tree, function, set(suspects))
    return source.apply(*source.delete_all(dead))


def _dead(
    tree: ast.Module, function: ast.FunctionDef, suspects: set[str]
) -> list[ast.stmt]:
    """Assume that all statements that set suspects are dead, with what they read;
    then take back whatever something alive reads."""
    anywhere = set().union(*map(_sets, function.body))
    spared: set[str] = set()
    dead: list[ast.stmt] = []
    while True:
        names: set[str] = set()
        more = suspects - spared
        while more != names:
            names = more
            dead = [
                one
                for one in function.body
                if _sets(one) & names and not _sets(one) & spared
            ]
            fed = set().union(*map(_reads, dead)) & anywhere
            more = names.union(fed - spared, *map(_sets, dead))
        alive = _read_outside(tree, function, dead)
        wrong = set().union(*map(_sets, dead)) & alive
        if not wrong:
            return dead
        spared |= wrong


def _sets(node: ast.stmt) -> set[str]:
    """The names (``x`` for ``self.x`` too) that a statement sets, if that is all that
    it does; else nothing."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        made = {
            one.id if isinstance(one, ast.Name) else self_attribute(one)
            for one in targets
        }
        return made if "" not in made else set()
    if isinstance(node, ast.If):
        parts = [_sets(one) for one in (*node.body, *node.orelse)]
        return set().union(*parts) if all(parts) else set()
    return set()


def _reads(node: ast.AST) -> set[str]:
    return attributes_read([node]) | names_read(node)


def _read_outside(
    tree: ast.Module, function: ast.FunctionDef, dead: list[ast.stmt]
) -> set[str]:
    """Attributes that anything else in the file reads (also by getattr), and names
    that anything else in the function does."""
    skipped = {id(one) for node in dead for one in ast.walk(node)}
    found: set[str] = set()
    for one in ast.walk(tree):
        if id(one) in skipped:
            continue
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load):
            found.add(one.attr)
        elif isinstance(one, ast.Call) and len(one.args) > 1:
            whose, what = map(ast.unparse, one.args[:2])
            if ast.unparse(one.func) in ("getattr", "hasattr") and whose != "config":
                found.add(what.strip("'"))
    return found | {
        one.id
        for one in ast.walk(function)
        if id(one) not in skipped
        and isinstance(one, ast.Name)
        and isinstance(one.ctx, ast.Load)
    }


def drop_unused_imports(
    text: str, before: str, needed: Collection[str]
) -> tuple[str, list[str]]:
    """Without the imports that ``before`` used and ``text`` does not, and their names.

    Used is what stands anywhere else in the file as a word, comments and strings
    counted in. ``needed``: names that other files import from this one.
    """
    dropped: list[str] = []
    while True:
        source = Source(text)
        found = _unused(source.tree, text, before, needed)
        if found is None:
            return text, dropped
        statement, index = found
        alias = statement.names[index]
        dropped.append(alias.asname or alias.name)
        if len(statement.names) == 1:
            text = source.apply(source.delete(statement))
        else:
            spans = [source.span(one) for one in statement.names]  # type: ignore[arg-type]
            text = source.apply(source.drop(spans, index))


def _unused(
    tree: ast.Module, text: str, before: str, needed: Collection[str]
) -> tuple[ast.Import | ast.ImportFrom, int] | None:
    for node in tree.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        for index, alias in enumerate(node.names):
            name = (alias.asname or alias.name).split(".")[0]
            if name in needed or name == "*" or _count(name, text) > 1:
                continue
            if _count(name, before) > 1:
                return node, index
    return None


def _count(name: str, text: str) -> int:
    return len(re.findall(rf"\b{re.escape(name)}\b", text))
