"""What a recipe imports: its base class, and the vocabulary that recipes share.

A recipe names its anchors by scope (a method of a class, the import block), so that
the engine can hand LibCST the smallest slice that is safe, while LibCST's own runner
(``python -m libcst.tool codemod``) runs the same methods over the whole file.
"""

from patchkit.recipe.anchors import (
    Ambiguous,
    AnchorMissing,
    BadOption,
    Edit,
    Import,
    Method,
    NotNeeded,
    Unmatched,
)
from patchkit.recipe.base import Recipe
from patchkit.recipe.insertion import Insertion, insert, insert_first
from patchkit.recipe.shapes import (
    Statement,
    assigned_call,
    code,
    names_handed_to,
    only,
    statements,
    target_names,
    unpacked_pair,
)

__all__ = [
    "Ambiguous",
    "AnchorMissing",
    "BadOption",
    "Edit",
    "Import",
    "Insertion",
    "Method",
    "NotNeeded",
    "Recipe",
    "Statement",
    "Unmatched",
    "assigned_call",
    "code",
    "insert",
    "insert_first",
    "names_handed_to",
    "only",
    "statements",
    "target_names",
    "unpacked_pair",
]
