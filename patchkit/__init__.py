"""Patch SGLang by syntax tree: recipes, a git journal, and proof that it runs."""

__version__ = "0.1.0"
