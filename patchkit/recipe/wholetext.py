"""Recipes that can't name their places in advance, and edit lines of the whole file."""

from __future__ import annotations

import libcst as cst

from patchkit.recipe.base import Recipe


class EditsText(Recipe):
    """``files`` says which files; ``edit_text`` edits one.

    A recipe names ``Recipe`` among its bases too: ``patchkit list`` looks for it.
    """

    inserts_only = False

    def edit_text(self, text: str) -> str:
        """The new text; what was found goes to ``self.found``."""
        raise NotImplementedError

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        text = self.edit_text(tree.code)
        return cst.parse_module(text, tree.config_for_parsing)
