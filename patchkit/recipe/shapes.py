"""Shapes of code, recognised by structure."""

from __future__ import annotations

from typing import Union

import libcst as cst

Statement = Union[cst.SimpleStatementLine, cst.BaseCompoundStatement]

_STATEMENT = (
    cst.SimpleStatementLine,
    cst.SimpleStatementSuite,
    cst.BaseCompoundStatement,
)


def statements(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Every statement inside ``node``'s own body, outer before inner, in order.

    Bodies of nested functions and classes are left out. A one-line suite counts as
    one statement, so that an anchor in it is seen (and refused by ``insert``).
    """
    found: list[cst.CSTNode] = []

    class Collect(cst.CSTVisitor):
        def on_visit(self, inner: cst.CSTNode) -> bool:
            if inner is not node and isinstance(inner, _STATEMENT):
                found.append(inner)
            nested = isinstance(inner, (cst.FunctionDef, cst.ClassDef))
            return inner is node or (not nested and may_hold_statements(inner))

    node.visit(Collect())
    return found


def may_hold_statements(node: cst.CSTNode) -> bool:
    """Whether it is worth looking inside: most nodes are expressions."""
    return not isinstance(
        node,
        (
            cst.BaseExpression,
            cst.SimpleStatementLine,
            cst.SimpleStatementSuite,
            cst.Parameters,
            cst.Decorator,
            cst.EmptyLine,
            cst.TrailingWhitespace,
            cst.BaseParenthesizableWhitespace,
        ),
    )


def only(statement: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """The small statement of a line that holds just one."""
    if isinstance(statement, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
        return statement.body[0] if len(statement.body) == 1 else None
    return None


def code(node: cst.CSTNode) -> str:
    """``node`` as source, on one line, for messages and comparisons."""
    return " ".join(cst.Module([]).code_for_node(node).split())


def assigned_call(node: cst.CSTNode | None) -> cst.Call | None:
    """The call on the right of ``... = call(...)``."""
    if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
        return node.value
    return None


def target_names(node: cst.CSTNode | None) -> list[str]:
    """The plain names on the left of an assignment, or nothing."""
    if not isinstance(node, cst.Assign) or len(node.targets) != 1:
        return []
    target = node.targets[0].target
    if isinstance(target, cst.Name):
        return [target.value]
    if isinstance(target, (cst.Tuple, cst.List)):
        parts = [one.value for one in target.elements]
        return [one.value for one in parts if isinstance(one, cst.Name)]
    return []


def unpacked_pair(node: cst.CSTNode | None) -> tuple[str, str] | None:
    """The two names of ``a, b = c``."""
    if isinstance(node, cst.Assign) and isinstance(node.value, cst.Name):
        names = target_names(node)
        if len(names) == 2:
            return names[0], names[1]
    return None


def names_handed_to(function: cst.FunctionDef, callee: str) -> set[str]:
    """Names that appear as arguments of calls of ``callee`` inside ``function``."""
    names: set[str] = set()

    class Collect(cst.CSTVisitor):
        def visit_Call(self, node: cst.Call) -> None:
            if code(node.func) == callee:
                names.update(
                    one.value.value
                    for one in node.args
                    if isinstance(one.value, cst.Name)
                )

    function.visit(Collect())
    return names
