"""Whose attribute an attribute is: only those of the class around are known."""

from __future__ import annotations

import ast

from patchkit.recipe.debugcode.names import Names


def class_around(names: Names, statement: ast.stmt) -> ast.ClassDef | None:
    for one in names.ancestors(names.parent[statement]):
        if isinstance(one, ast.ClassDef):
            return one
    return None


def owner(names: Names, node: ast.AST) -> ast.ClassDef | None:
    """The class of this file that ``node`` is an attribute of; None if it can't be
    told, as for ``layer.debug`` and for what a class inherits."""
    around = class_around(names, names.home[node])
    if not isinstance(node, ast.Attribute):
        return around
    base = node.value
    if isinstance(base, ast.Name) and base.id in ("self", "cls"):
        return around
    if ast.unparse(base) in ("type(self)", "self.__class__"):
        return around
    if around is not None and isinstance(base, ast.Name) and base.id == around.name:
        return around
    return None


def is_own(names: Names, node: ast.expr) -> bool:
    """A name, or an attribute of the class around: where debug code keeps its state."""
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Attribute) and owner(names, node) is not None
    )


def is_owners(names: Names, node: ast.AST, store: ast.AST) -> bool:
    """Whether ``store`` binds the attribute of the same class that ``node`` reads."""
    mine = owner(names, node)
    return mine is not None and owner(names, store) is mine
