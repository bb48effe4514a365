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
    """The names on the left of an assignment; nothing if some part is no name."""
    if not isinstance(node, cst.Assign) or len(node.targets) != 1:
        return []
    target = node.targets[0].target
    if isinstance(target, cst.Name):
        return [target.value]
    if isinstance(target, (cst.Tuple, cst.List)):
        parts = [one.value for one in target.elements]
        names = [one.value for one in parts if isinstance(one, cst.Name)]
        return names if len(names) == len(parts) else []
    return []


def unpacked_pair(node: cst.CSTNode | None) -> tuple[str, str] | None:
    """The two names of ``a, b = c``."""
    if isinstance(node, cst.Assign) and isinstance(node.value, cst.Name):
        names = target_names(node)
        if len(names) == 2:
            return names[0], names[1]
    return None


def calls_of(node: cst.CSTNode, callee: str) -> list[cst.Call]:
    """The calls of ``callee`` (as written) inside ``node``."""
    found: list[cst.Call] = []

    class Collect(cst.CSTVisitor):
        def visit_Call(self, node: cst.Call) -> None:
            if code(node.func) == callee:
                found.append(node)

    node.visit(Collect())
    return found


def reads_attribute(node: cst.CSTNode, attribute: str) -> bool:
    """Whether ``attribute`` (``self.x``) is read, or changed in place, in ``node``."""
    assigned: set[int] = set()
    found = False

    class Look(cst.CSTVisitor):
        def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
            assigned.add(id(node.target))

        def visit_Attribute(self, node: cst.Attribute) -> None:
            nonlocal found
            found = found or (id(node) not in assigned and code(node) == attribute)

    node.visit(Look())
    return found


def argument(call: cst.Call, position: int, keyword: str) -> cst.BaseExpression | None:
    """The argument given at ``position`` (0-based) or as ``keyword``."""
    for number, one in enumerate(call.args):
        if one.star:
            return None
        named = one.keyword.value if one.keyword else None
        if named == keyword or (named is None and number == position):
            return one.value
    return None


def tests_width_of(test: cst.BaseExpression, name: str) -> bool:
    """Whether ``test`` reads ``name.shape[-1]`` of the plain name, and binds it not."""
    reads, binds = False, False

    class Look(cst.CSTVisitor):
        def visit_Subscript(self, node: cst.Subscript) -> None:
            nonlocal reads
            reads = reads or code(node) == f"{name}.shape[-1]"

        def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
            nonlocal binds
            binds = binds or code(node.target) == name

    test.visit(Look())
    return reads and not binds


def bound_before(function: cst.FunctionDef, anchor: cst.CSTNode, name: str) -> bool:
    """Whether ``name`` surely has a value at ``anchor``: it is a parameter or assigned
    at the top of the function's body before, and not deleted anywhere before."""
    bound = any(one.name.value == name for one in function.params.params)
    top = set(map(id, function.body.body))
    for statement in statements(function):
        if statement is anchor:
            return bound
        small = only(statement)
        if isinstance(small, cst.Del) and name in code(small.target).split(", "):
            return False
        if id(statement) in top and name in target_names(small):
            bound = True
        if isinstance(statement, cst.If) and statement.orelse is not None:
            bound = bound or _binds_in_all_arms(statement, name)
    return bound


def _binds_in_all_arms(branch: cst.If, name: str) -> bool:
    arms: list[cst.CSTNode] = [branch.body]
    rest: cst.If | cst.Else | None = branch.orelse
    while isinstance(rest, cst.If):
        arms.append(rest.body)
        rest = rest.orelse
    if rest is None:
        return False
    arms.append(rest.body)
    return all(
        any(name in target_names(only(one)) for one in getattr(arm, "body", ()))
        for arm in arms
    )
