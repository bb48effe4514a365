"""What a recipe imports: its base class, and the vocabulary that recipes share.

A recipe names its anchors by scope (a method of a class, the import block), so that
the engine can hand LibCST the smallest slice that is safe, while LibCST's own runner
(``python -m libcst.tool codemod``) runs the same methods over the whole file.
"""

from patchkit.recipe.anchors import (
    Ambiguous,
    AnchorMissing,
    BadOption,
    Constants,
    Edit,
    Import,
    Members,
    Method,
    NotNeeded,
    Unmatched,
)
from patchkit.recipe.base import Recipe
from patchkit.recipe.captures import Captures, append_target, find_captures
from patchkit.recipe.debugcode import gate_debug_code, remove_debug_code
from patchkit.recipe.debugcode.recipe import EditsDebugCode
from patchkit.recipe.drafts import makes_plain_linear, width_guard
from patchkit.recipe.insertion import Insertion, insert, insert_first, insert_members
from patchkit.recipe.removal import RemovesCapture
from patchkit.recipe.setters import (
    ids_parameter,
    insert_behind_layers,
    layers_target,
    method_of,
    with_method,
)
from patchkit.recipe.sglang import (
    LayerCall,
    deferral_mark,
    is_aux_states,
    joins_last_axis,
    one_layer_call,
    setters_of,
    states_handed,
)
from patchkit.recipe.shapes import (
    Statement,
    argument,
    assigned_call,
    bound_before,
    calls_of,
    code,
    only,
    reads_attribute,
    statements,
    target_names,
    tests_width_of,
    unpacked_pair,
)
from patchkit.recipe.wholetext import EditsText

__all__ = [
    "Ambiguous",
    "AnchorMissing",
    "BadOption",
    "Captures",
    "Constants",
    "Edit",
    "EditsDebugCode",
    "EditsText",
    "Import",
    "Insertion",
    "LayerCall",
    "Members",
    "Method",
    "NotNeeded",
    "Recipe",
    "RemovesCapture",
    "Statement",
    "Unmatched",
    "append_target",
    "argument",
    "assigned_call",
    "bound_before",
    "calls_of",
    "code",
    "deferral_mark",
    "find_captures",
    "gate_debug_code",
    "ids_parameter",
    "insert",
    "insert_behind_layers",
    "insert_first",
    "insert_members",
    "is_aux_states",
    "joins_last_axis",
    "layers_target",
    "makes_plain_linear",
    "method_of",
    "one_layer_call",
    "only",
    "reads_attribute",
    "remove_debug_code",
    "setters_of",
    "statements",
    "states_handed",
    "target_names",
    "tests_width_of",
    "unpacked_pair",
    "width_guard",
    "with_method",
]
