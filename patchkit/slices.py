"""Which lines of a file the edits of a recipe need: the smallest slices that are safe.

Located with ``ast``; LibCST then parses only these.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.recipe import (
    Ambiguous,
    AnchorMissing,
    Constants,
    Edit,
    Import,
    Members,
)


@dataclass(frozen=True)
class Span:
    """Lines ``start`` (0-based) to ``stop`` (exclusive)."""

    start: int
    stop: int


def by_scope(edits: Sequence[Edit]) -> list[list[Edit]]:
    """The edits that share a slice, together: those of one method, or of one class
    where its members are edited, too."""
    whole = {one.class_name for one in edits if isinstance(one, Members)}
    groups: dict[tuple[str, ...], list[Edit]] = {}
    for one in edits:
        if isinstance(one, (Import, Constants)):
            scope: tuple[str, ...] = (type(one).__name__, one.site)
        elif isinstance(one, Members) or one.class_name in whole:
            scope = ("class", one.class_name)
        else:
            scope = (one.class_name, one.function)
        groups.setdefault(scope, []).append(one)
    for found in groups.values():
        # the slice is that of the first
        found.sort(key=lambda one: not isinstance(one, Members))
    return list(groups.values())


def locate(tree: ast.Module, edit: Edit, lines: list[bytes]) -> Span:
    """Where the smallest safe slice for ``edit`` lies."""
    if isinstance(edit, (Import, Constants)):
        return _locate_lines(tree, edit, lines)
    if isinstance(edit, Members):
        return _locate_class(tree, edit, lines)
    methods = [
        node
        for owner in tree.body
        if isinstance(owner, ast.ClassDef) and owner.name in edit.owners
        for node in owner.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    wanted = edit.chosen([node.name for node in methods])
    for owner in edit.owners:
        _refuse_second_class(tree, owner)
        _refuse_second_method(tree, owner, wanted)
    node = next(node for node in methods if node.name == wanted)
    start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    assert node.end_lineno is not None  # ast.parse always sets it
    if node.body[0].lineno == node.lineno:
        raise Ambiguous(f"the body of {edit.what} is on the line of its def")
    return Span(start - 1, node.end_lineno)


def _locate_class(tree: ast.Module, edit: Members, lines: list[bytes]) -> Span:
    """From the class's first line to the first of the next statement."""
    found = [
        (number, node)
        for number, node in enumerate(tree.body)
        if isinstance(node, ast.ClassDef) and node.name == edit.class_name
    ]
    edit.check(len(found))
    _refuse_second_class(tree, edit.class_name)
    ((number, node),) = found
    after = tree.body[number + 1 : number + 2]
    stop = _first_line(after[0]) - 1 if after else len(lines)
    return Span(_first_line(node) - 1, stop)


def _first_line(node: ast.stmt) -> int:
    """1-based, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _refuse_second_class(tree: ast.Module, class_name: str) -> None:
    """Raise Ambiguous if another definition, under an ``if`` or ``try``, may win."""
    for node in tree.body:
        if isinstance(node, (ast.If, ast.Try)):
            for inner in ast.walk(node):
                if isinstance(inner, ast.ClassDef) and inner.name == class_name:
                    raise Ambiguous(
                        f"class {class_name} is defined again, on line {inner.lineno},"
                        " under a condition"
                    )


def _refuse_second_method(tree: ast.Module, class_name: str, function: str) -> None:
    """The same for a method of the class."""
    for node in tree.body:
        if not (isinstance(node, ast.ClassDef) and node.name == class_name):
            continue
        for member in node.body:
            if not isinstance(member, (ast.If, ast.Try)):
                continue
            for inner in ast.walk(member):
                if isinstance(inner, ast.FunctionDef) and inner.name == function:
                    raise Ambiguous(
                        f"{class_name}.{function} is defined again, on line"
                        f" {inner.lineno}, under a condition"
                    )


def _locate_lines(
    tree: ast.Module, edit: Import | Constants, lines: list[bytes]
) -> Span:
    """In front of which line new ones go; see ``patchkit.recipe.base.position``."""
    last: ast.stmt | None = None
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and last is not None:
            break  # an import further down comes too late for these
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        last = node
        if isinstance(edit, Import) and isinstance(node, ast.ImportFrom):
            above = lines[node.lineno - 2] if node.lineno > 1 else b""
            glued = above.lstrip().startswith(b"#")
            if node.module and not node.level and edit.goes_before(node.module, glued):
                return Span(node.lineno - 1, node.lineno - 1)
    if last is None:
        raise AnchorMissing("no import at the top level of this file", like="import")
    assert last.end_lineno is not None  # ast.parse always sets it
    return Span(last.end_lineno, last.end_lineno)


def indentation(tree: ast.Module, lines: Sequence[bytes]) -> str:
    """One level of indentation in this file."""
    for node in tree.body:
        body = getattr(node, "body", None)
        if body and body[0].lineno > node.lineno:
            line = lines[_first_line(body[0]) - 1].decode("utf-8")
            return line[: len(line) - len(line.lstrip())]
    return " " * 4
