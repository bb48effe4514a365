"""Takes code out of a file, with all that only it used."""

from patchkit.recipe.removal.recipe import RemovesCapture

__all__ = ["RemovesCapture"]
