"""Takes the ``fc`` path out of the draft."""

from __future__ import annotations

import ast

from patchkit.recipe.anchors import Ambiguous, AnchorMissing
from patchkit.recipe.removal.source import Source
from patchkit.recipe.removal.sweep import (
    attributes_read,
    class_of,
    drop_dead_state,
    method_named,
)

DRAFT = "LlamaModel"


def drop_draft_path(text: str) -> str:
    """Without the width guard around ``self.fc`` and what only it used; ``text`` if it
    has no ``fc``. Raises AnchorMissing or Ambiguous for an unknown shape."""
    source = Source(text)
    function = method_named(class_of(source.tree, DRAFT), "forward")
    if function is None:
        raise AnchorMissing(f"no {DRAFT}.forward in this file", like="def forward(self")
    if "fc" not in attributes_read([source.tree]):
        return text
    guards = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.If)
        and "fc" in attributes_read(node.body)
        and ".shape[-1]" in ast.unparse(node.test)
    ]
    if len(guards) != 1 or guards[0].orelse:
        raise Ambiguous(f"not one plain width guard around self.fc, but {len(guards)}")
    (guard,) = guards
    suspects = attributes_read([guard])
    text = source.apply(source.delete(guard))
    if "fc" in attributes_read([ast.parse(text)]):
        raise Ambiguous("self.fc is used outside of the width guard, too")
    return drop_dead_state(text, DRAFT, suspects)
