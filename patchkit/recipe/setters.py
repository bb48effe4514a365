"""Shapes of the functions that choose which layers are captured, and of classes."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from patchkit.recipe.anchors import Ambiguous, AnchorMissing
from patchkit.recipe.insertion import Insertion, insert
from patchkit.recipe.shapes import Statement, code, only, statements

LAYERS = "layers_to_capture"


def method_of(owner: cst.ClassDef, name: str) -> cst.FunctionDef | None:
    """The method ``name`` of a class. Raises Ambiguous if it has two."""
    found = [
        node
        for node in owner.body.body
        if isinstance(node, cst.FunctionDef) and node.name.value == name
    ]
    if len(found) > 1:
        raise Ambiguous(f"{owner.name.value}.{name} is defined twice")
    return found[0] if found else None


def with_method(
    owner: cst.ClassDef, method: cst.FunctionDef, changed: cst.FunctionDef
) -> cst.ClassDef:
    """``owner`` with ``changed`` in the place of ``method``."""
    body = [changed if node is method else node for node in owner.body.body]
    return owner.with_changes(body=owner.body.with_changes(body=body))


def ids_parameter(setter: cst.FunctionDef) -> str:
    """The name of the layer ids in ``def set_..._layers_to_capture(self, layer_ids)``.

    Raises Ambiguous for another signature.
    """
    parameters = setter.params
    names = [one.name.value for one in parameters.params]
    more = parameters.kwonly_params or parameters.posonly_params
    if len(names) != 2 or more or parameters.star_kwarg:
        raise Ambiguous(f"{setter.name.value} takes other than the layer ids alone")
    return names[1]


def layers_target(setter: cst.FunctionDef) -> str:
    """What the setter assigns the layers to, as written: self.model.layers_to_capture.

    Raises AnchorMissing if it assigns none, Ambiguous if two.
    """
    found = set()
    for statement in statements(setter):
        node = only(statement)
        if isinstance(node, cst.Assign):
            found |= {
                code(one.target)
                for one in node.targets
                if isinstance(one.target, cst.Attribute)
                and one.target.attr.value == LAYERS
            }
    if not found:
        raise AnchorMissing(
            f"{setter.name.value} sets no {LAYERS}",
            like=f"self.model.{LAYERS} = [val + 1 for val in layer_ids]",
        )
    if len(found) > 1:
        raise Ambiguous(f"{setter.name.value} sets {' and '.join(sorted(found))}")
    return found.pop()


def insert_behind_layers(
    setter: cst.FunctionDef, build: Callable[[int], list[Statement]]
) -> cst.FunctionDef:
    """``setter`` with statements put last, where the layers are set.

    Raises AnchorMissing if it sets none, Ambiguous if it may return in between.
    """
    target = layers_target(setter)
    behind = False
    for statement in statements(setter):
        node = only(statement)
        if isinstance(node, cst.Assign) and code(node.targets[0].target) == target:
            behind = True
        elif behind and isinstance(node, (cst.Return, cst.Raise)):
            raise Ambiguous(f"{setter.name.value} may return after it set the layers")
    return insert(setter, Insertion(setter.body.body[-1], after=build))
