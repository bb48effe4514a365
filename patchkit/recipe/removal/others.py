"""What other files of the tree need of the one that is edited."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

PROCESSOR = "logits_processor"
STATES = "aux_hidden_states"


def files_that_hand_states(files: Mapping[str, bytes]) -> list[str]:
    """The stems of files that hand aux states to a logits processor: fifth of its
    arguments, or by name."""
    return [
        _stem(path)
        for path, tree in _trees(files, PROCESSOR)
        if any(_hands_states(node) for node in ast.walk(tree))
    ]


def _hands_states(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr != PROCESSOR:
        return False
    handed = [*node.args[4:5], *(k.value for k in node.keywords if k.arg == STATES)]
    return any(
        not (isinstance(one, ast.Constant) and one.value is None) for one in handed
    )


def imported_from(files: Mapping[str, bytes], stem: str) -> set[str]:
    """The names that ``files`` import from module ``stem``, or read from it."""
    found = set()
    for _, tree in _trees(files, stem):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                if (node.module or "").rpartition(".")[2] == stem:
                    found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == stem:
                found.add(node.attr)
    return found


def files_that_pass(files: Mapping[str, bytes], owner: str, keyword: str) -> list[str]:
    """The stems of files that know class ``owner`` and pass ``keyword`` to a call."""
    return [
        _stem(path)
        for path, tree in _trees(files, owner)
        if any(
            isinstance(node, ast.keyword) and node.arg == keyword
            for node in ast.walk(tree)
        )
    ]


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".py")


def _trees(files: Mapping[str, bytes], word: str) -> Iterator[tuple[str, ast.Module]]:
    """The files in which ``word`` stands; one that is no Python is nobody's user."""
    for path, data in sorted(files.items()):
        if word.encode() in data:
            try:
                yield path, ast.parse(data)
            except (SyntaxError, ValueError):
                continue
