"""Shapes of the draft model, ``llama_eagle3.py``."""

from __future__ import annotations

import libcst as cst

from patchkit.recipe.anchors import Ambiguous, AnchorMissing
from patchkit.recipe.shapes import (
    assigned_call,
    bound_before,
    code,
    only,
    statements,
    target_names,
    tests_width_of,
)


def width_guard(function: cst.FunctionDef) -> tuple[cst.If, str]:
    """``if x.shape[-1] != ...:`` around ``x = self.fc(...)``, and the name ``x``.

    Raises AnchorMissing if nothing guards ``fc``, Ambiguous if two places do, or if
    the guard tests another tensor, or one that may have no value there.
    """
    guards = []
    for statement in statements(function):
        if isinstance(statement, cst.If) and ".shape[-1]" in code(statement.test):
            for inner in statements(statement):
                call = assigned_call(only(inner))
                if call is not None and code(call.func) == "self.fc":
                    guards.append((statement, target_names(only(inner))))
    if not guards:
        raise AnchorMissing(
            "no width guard (an if on .shape[-1]) around self.fc(...)",
            like="if hidden_states.shape[-1] != embeds.shape[-1]:",
        )
    if len(guards) > 1:
        raise Ambiguous(f"self.fc is called in {len(guards)} guarded places")
    ((guard, names),) = guards
    if len(names) != 1 or not tests_width_of(guard.test, names[0]):
        raise Ambiguous("the width guard tests another tensor than fc returns")
    if not bound_before(function, guard, names[0]):
        raise Ambiguous(f"{names[0]} may have no value in front of the width guard")
    return guard, names[0]


def makes_plain_linear(start: cst.FunctionDef, target: str) -> bool:
    """Whether ``__init__`` makes ``target`` with torch's own ``Linear``, and with
    nothing else. Raises Ambiguous if it does not make it at all."""
    found = []
    for statement in statements(start):
        node = only(statement)
        if isinstance(node, cst.Assign):
            targets: list[cst.CSTNode] = [one.target for one in node.targets]
        elif isinstance(node, cst.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        if target in map(code, targets):
            value = node.value
            made = code(value.func) if isinstance(value, cst.Call) else ""
            found.append(made in ("torch.nn.Linear", "nn.Linear"))
    if not found:
        raise Ambiguous(f"{start.name.value} does not make {target}")
    return all(found)
