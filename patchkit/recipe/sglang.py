"""Shapes of SGLang's own code that recipes share."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from patchkit.recipe.anchors import Ambiguous, AnchorMissing
from patchkit.recipe.shapes import (
    argument,
    assigned_call,
    code,
    only,
    statements,
    target_names,
)


def states_handed(call: cst.Call) -> tuple[str, str]:
    """The names of the hidden states and of the aux states in a call of the logits
    processor; "" where there is none. The aux states come fifth, or by keyword."""
    found = (
        argument(call, 1, "hidden_states"),
        argument(call, 4, "aux_hidden_states"),
    )
    hidden, aux = (
        one.value if isinstance(one, cst.Name) and one.value != "None" else ""
        for one in found
    )
    return hidden, aux


def is_aux_states(name: str) -> bool:
    """aux_hidden_states, aux_pruned_states; not, say, aux_losses."""
    return "aux" in name and ("states" in name or "hidden" in name)


def layer_name(loop: cst.For) -> str | None:
    """The name bound by ``layer = self.layers[i]`` inside ``for i in ...``."""
    index = code(loop.target)
    for statement in statements(loop):
        node = only(statement)
        if isinstance(node, cst.Assign) and code(node.value) == f"self.layers[{index}]":
            names = target_names(node)
            if len(names) == 1:
                return names[0]
    return None


@dataclass(frozen=True)
class LayerCall:
    """``statement``: ``... = layer(...)`` inside ``loop``; ``index`` and ``layer`` are
    the names of the loop's variable and of the layer."""

    loop: cst.For
    index: str
    layer: str
    statement: cst.CSTNode
    call: cst.Call

    def stream(self) -> tuple[str, str]:
        """The names of the hidden states and of the residual, which the call takes
        and returns; "" for what it does not (no residual from 0.5.21 on)."""
        given = [
            one.value.value for one in self.call.args if isinstance(one.value, cst.Name)
        ]
        both = [name for name in target_names(only(self.statement)) if name in given]
        residual = "residual" if "residual" in both else ""
        return next((name for name in both if name != residual), ""), residual


def layer_calls(function: cst.FunctionDef) -> list[LayerCall]:
    """The calls of a layer in loops over ``self.layers``."""
    found = []
    for loop in statements(function):
        if not isinstance(loop, cst.For) or not isinstance(loop.target, cst.Name):
            continue
        layer = layer_name(loop)
        for statement in statements(loop):
            call = assigned_call(only(statement))
            if layer is not None and call is not None and code(call.func) == layer:
                found.append(LayerCall(loop, loop.target.value, layer, statement, call))
    return found


def one_layer_call(function: cst.FunctionDef) -> LayerCall:
    """The one call of a layer in loops over ``self.layers``.

    Raises AnchorMissing if there is none, Ambiguous if there are several.
    """
    calls = layer_calls(function)
    if not calls:
        raise AnchorMissing(
            "no loop over self.layers that calls the layer",
            like="hidden_states, residual = layer(",
        )
    if len(calls) > 1:
        raise Ambiguous(f"{len(calls)} calls of a layer in loops over self.layers")
    return calls[0]


def deferral_mark(function: cst.FunctionDef) -> str:
    """The attribute that a decoder layer's ``forward`` sets on its output when it
    leaves the all-reduce to the next layer; "" if it never does."""
    for statement in statements(function):
        node = only(statement)
        if isinstance(node, cst.Assign) and code(node.value) == "True":
            target = node.targets[0].target
            if isinstance(target, cst.Attribute) and "allreduce" in target.attr.value:
                return target.attr.value
    return ""


def setters_of(owner: cst.ClassDef) -> list[cst.FunctionDef]:
    """The methods that choose which layers are captured, for EAGLE-3 and DFlash."""
    return [
        node
        for node in owner.body.body
        if isinstance(node, cst.FunctionDef)
        and node.name.value.startswith("set_")
        and node.name.value.endswith("_layers_to_capture")
    ]


def joins_last_axis(call: cst.Call) -> bool:
    """``torch.cat(x, dim=-1)``, or from 0.5.17 ``pack_aux_hidden_states(x)``."""
    function = code(call.func)
    if function.rpartition(".")[2] == "pack_aux_hidden_states":
        return len(call.args) == 1
    if function not in ("torch.cat", "torch.concat", "torch.concatenate"):
        return False
    axes = [
        one
        for one in call.args[1:]
        if one.keyword is None or one.keyword.value in ("dim", "axis")
    ]
    return len(axes) == 1 and code(axes[0].value) == "-1"
