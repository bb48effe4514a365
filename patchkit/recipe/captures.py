"""Shapes of the capture in ``DeepseekV2Model.forward``."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from patchkit.recipe.anchors import Ambiguous
from patchkit.recipe.setters import LAYERS
from patchkit.recipe.sglang import LayerCall, one_layer_call
from patchkit.recipe.shapes import code, only, statements

#: From 0.5.14 on: the layer is given what to append to, and captures by itself.
KEYWORD = "captured_last_layer_outputs"


@dataclass(frozen=True)
class Captures:
    """How a layer loop captures: ``inline`` are the branches ``if i in
    self.layers_to_capture`` of the loop that take the sum ``hidden + residual``;
    ``keyword``: the layer call hands the list on; ``other``: branches that do neither.
    """

    call: LayerCall
    hidden: str
    residual: str
    inline: tuple[cst.If, ...]
    other: tuple[cst.If, ...]
    keyword: bool


def find_captures(function: cst.FunctionDef) -> Captures:
    """How ``DeepseekV2Model.forward`` captures, if at all.

    Raises AnchorMissing or Ambiguous unless one loop over ``self.layers`` calls one
    layer.
    """
    call = one_layer_call(function)
    hidden, residual = call.stream()
    inline: list[cst.If] = []
    other: list[cst.If] = []
    for statement in statements(call.loop):
        if not isinstance(statement, cst.If) or not _tests(statement.test, call.index):
            continue
        sums = {f"{hidden} + {residual}", f"{residual} + {hidden}"}
        (inline if residual and _adds(statement, sums) else other).append(statement)
    keyword = any(
        one.keyword is not None and one.keyword.value == KEYWORD
        for one in call.call.args
    )
    return Captures(call, hidden, residual, tuple(inline), tuple(other), keyword)


def append_target(branch: cst.If) -> str:
    """The list that a branch appends to: ``x`` of ``x.append(...)``.

    Raises Ambiguous if it appends to none, or to several.
    """
    found = set()
    for statement in statements(branch):
        node = only(statement)
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
            function = node.value.func
            if isinstance(function, cst.Attribute) and function.attr.value == "append":
                found.add(code(function.value))
    if len(found) != 1:
        told = " and ".join(sorted(found)) or "no list"
        raise Ambiguous(f"what is captured is appended to {told}")
    return found.pop()


def _tests(test: cst.BaseExpression, index: str) -> bool:
    """Whether ``index in ....layers_to_capture`` is (part of) ``test``."""
    found = False

    class Look(cst.CSTVisitor):
        def visit_Comparison(self, node: cst.Comparison) -> None:
            nonlocal found
            for one in node.comparisons:
                member = one.comparator
                found = found or (
                    isinstance(one.operator, cst.In)
                    and code(node.left) == index
                    and code(member).rpartition(".")[2] == LAYERS
                )

    test.visit(Look())
    return found


def _adds(branch: cst.If, sums: set[str]) -> bool:
    found = False

    class Look(cst.CSTVisitor):
        def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:
            nonlocal found
            found = found or code(node) in sums

    branch.body.visit(Look())
    return found
