"""In which order a server's start tells the target which layers to capture.

Up to 0.5.10.post1 the graph runner calls ``set_eagle3_layers_to_capture()`` without
ids before it captures, and the model runner passes the draft's ids only afterwards.
Read from the source: neither runner can run without a GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

SETTER = "set_eagle3_layers_to_capture"


def setters(package: Path) -> list[str]:
    """``["default", "explicit"]`` where some runner calls without ids, else
    ``["explicit"]``; empty where nothing calls it at all."""
    calls = set()
    for file in sorted((package / "srt/model_executor").rglob("*.py")):
        calls |= set(_calls(file))
    if not calls:
        return []
    return ["default", "explicit"] if 0 in calls else ["explicit"]


def captures(*sources: bytes | None) -> bool:
    """Whether one of these, the target's model as it stands in some tree, has it."""
    return any(SETTER.encode() in (source or b"") for source in sources)


def _calls(file: Path) -> Iterable[int]:
    """The number of arguments of each call of the setter in ``file``."""
    data = file.read_bytes()
    if SETTER.encode() not in data:
        return
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == SETTER
        ):
            yield len(node.args) + len(node.keywords)
