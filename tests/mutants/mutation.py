"""A mutant: one small wrong change of one file of a patched tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

TARGET = "srt/models/deepseek_v2.py"
DRAFT = "srt/models/llama_eagle3.py"
LOGITS = "srt/layers/logits_processor.py"


@dataclass(frozen=True)
class Edit:
    """``pattern`` (multi-line) becomes ``new`` inside ``scope``: a class or method by
    its dotted name, "" for the whole file."""

    scope: str
    pattern: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """``edits``: one for each shape of the code; the first that matches is meant, and
    must match once. ``by``: the checks that should catch it. ``since``: the first
    release in which it is one (see the comment where it is given)."""

    name: str
    path: str
    by: tuple[str, ...]
    edits: tuple[Edit, ...]
    since: str = ""

    @property
    def key(self) -> str:
        """A name that no other mutant has."""
        return f"{self.path.rpartition('/')[-1]}: {self.name}"

    def apply(self, files: Mapping[str, bytes], release: str) -> bytes | None:
        """The changed file; ``None``: the release has no such place, or many."""
        if self.since and _number(release) < _number(self.since):
            return None
        text = files[self.path].decode()
        for edit in self.edits:
            start, end = span(text, edit.scope)
            inside = text[start:end]
            changed, count = re.subn(edit.pattern, edit.new, inside, flags=re.M)
            if count == 1 and changed != inside:
                return (text[:start] + changed + text[end:]).encode()
            if count:
                return None
        return None


def span(text: str, scope: str) -> tuple[int, int]:
    """Where ``scope`` stands in ``text``; an empty span if it does not."""
    if not scope:
        return 0, len(text)
    body = _body(text)
    node: ast.stmt | None = None
    for name in scope.split("."):
        named = (ast.ClassDef, ast.FunctionDef)
        # the last definition of a name is the one that counts
        found = [one for one in body if isinstance(one, named) and one.name == name]
        if not found:
            return 0, 0
        node, body = found[-1], found[-1].body
    assert node is not None and node.end_lineno is not None
    lines = text.splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1]))
    return start, start + sum(map(len, lines[node.lineno - 1 : node.end_lineno]))


@lru_cache(maxsize=64)
def _body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:3])


def mutant(
    name: str, path: str, by: str, *edits: tuple[str, str, str], since: str = ""
) -> Mutant:
    """``by``: names of checks, separated by blanks."""
    return Mutant(name, path, tuple(by.split()), tuple(Edit(*e) for e in edits), since)
