"""Puts whole statements around an anchor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import libcst as cst

from patchkit.recipe.anchors import Ambiguous
from patchkit.recipe.shapes import Statement, may_hold_statements


@dataclass(frozen=True)
class Insertion:
    """Statements to put around ``anchor``; built for the depth it stands at."""

    anchor: cst.CSTNode
    before: Callable[[int], list[Statement]] | None = None
    after: Callable[[int], list[Statement]] | None = None


def insert(function: cst.FunctionDef, *insertions: Insertion) -> cst.FunctionDef:
    """``function`` with whole statements put before or after its statements.

    Raises Ambiguous where an anchor shares its line with other statements: only
    whole physical lines are ever added.
    """
    splice = _Splice(insertions)
    changed = cst.ensure_type(function.visit(splice), cst.FunctionDef)
    if splice.pending:
        raise Ambiguous("the anchor shares its line with other code (a one-line suite)")
    return changed


def insert_first(
    function: cst.FunctionDef, build: Callable[[int], list[Statement]]
) -> cst.FunctionDef:
    """``function`` with statements put first in its body, below the docstring."""
    if not isinstance(function.body, cst.IndentedBlock):
        raise Ambiguous(f"the body of {function.name.value} is on its first line")
    first = function.body.body[0]
    if function.get_docstring() is not None:
        return insert(function, Insertion(first, after=build))
    return insert(function, Insertion(first, before=build))


def insert_members(
    owner: cst.ClassDef,
    *,
    first: Callable[[int], list[Statement]] | None = None,
    last: Callable[[int], list[Statement]] | None = None,
) -> cst.ClassDef:
    """``owner`` with members put first, below the docstring, and last.

    Raises Ambiguous if its body is on its first line.
    """
    block = owner.body
    if not isinstance(block, cst.IndentedBlock):
        raise Ambiguous(f"the body of {owner.name.value} is on its first line")
    top = 1 if owner.get_docstring() is not None else 0
    body = [*block.body[:top], *(first(1) if first else ()), *block.body[top:]]
    if last is None:
        return owner.with_changes(body=block.with_changes(body=body))
    # comments below the last member stay where they are: ours go behind them
    new = last(1)
    new[0] = new[0].with_changes(leading_lines=(*block.footer, *new[0].leading_lines))
    return owner.with_changes(body=block.with_changes(body=[*body, *new], footer=()))


class _Splice(cst.CSTTransformer):
    def __init__(self, insertions: Sequence[Insertion]):
        super().__init__()
        self.wanted = {id(one.anchor): one for one in insertions}
        self.pending = set(self.wanted)
        # a method's body: one level for the class, one for the function
        self.depth = 1

    def on_visit(self, node: cst.CSTNode) -> bool:
        return may_hold_statements(node) and super().on_visit(node)

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self.depth += 1

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        depth, self.depth = self.depth, self.depth - 1
        body: list[cst.BaseStatement] = []
        for old, new in zip(original_node.body, updated_node.body, strict=False):
            one = self.wanted.get(id(old))
            if one is None or not _owns_its_lines(old):
                body.append(new)
                continue
            self.pending.discard(id(old))
            before = one.before(depth) if one.before else []
            after = one.after(depth) if one.after else []
            body += [*before, new, *after]
        if len(body) == len(updated_node.body):
            return updated_node
        return updated_node.with_changes(body=body)


def _owns_its_lines(statement: cst.CSTNode) -> bool:
    if isinstance(statement, cst.SimpleStatementLine):
        return len(statement.body) == 1
    return True
