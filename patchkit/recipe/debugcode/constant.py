"""The module constant that gated code stands behind."""

from __future__ import annotations

import ast
import sys

from patchkit.recipe.debugcode.lines import (
    Lines,
    end_line,
    first_line,
    indent_of,
    is_blank,
    is_comment,
)
from patchkit.recipe.debugcode.names import Names
from patchkit.recipe.debugcode.switch import is_text
from patchkit.recipe.debugcode.words import VARIABLE

NAME = "_EAGLE3_DEBUG_ON"
_VALUE = (
    f'os.environ.get("{VARIABLE}", "").strip().lower() not in (',
    '    "",',
    '    "0",',
    '    "false",',
    '    "no",',
    '    "off",',
    ")",
)
_DUMP = ast.dump(ast.parse("\n".join(_VALUE), mode="eval").body)
_Import = (ast.Import, ast.ImportFrom)


def is_ours(node: ast.stmt) -> bool:
    """Whether this statement is the constant, under whatever name."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and ast.dump(node.value) == _DUMP
    )


def constant(names: Names, lines: Lines) -> str:
    """The constant's name; it is added below the imports if it is not there."""
    for one in names.tree.body:
        if is_ours(one) and isinstance(one, ast.Assign):
            target = one.targets[0]
            assert isinstance(target, ast.Name)
            return target.id
    name = NAME
    while name in _taken(names):
        name += "_"
    _add(name, names, lines)
    return name


def _taken(names: Names) -> set[str]:
    return {one.name for one in (*names.stores, *names.loads, *names.parameters)}


def _add(name: str, names: Names, lines: Lines) -> None:
    body = names.tree.body
    top = 0
    while top < len(body) and (is_text(body[top]) or isinstance(body[top], _Import)):
        top += 1
    imports = [one for one in body[:top] if isinstance(one, _Import)]
    if not any(_binds_os(one) for one in imports):
        _add_os([one for one in imports if not _is_future(one)], top, names, lines)
    first, *others = _VALUE
    deep = unit(names, lines)
    new = [f"{name} = {first}", *(one.replace("    ", deep) for one in others)]
    if top:
        lines.put(end_line(body[top - 1]), "", *new)
    else:
        lines.put(first_line(body[0]) if body else 0, *new, "")


def _binds_os(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) and any(
        one.name == "os" and one.asname is None for one in node.names
    )


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _add_os(imports: list[ast.stmt], top: int, names: Names, lines: Lines) -> None:
    """``import os``, where isort would put it."""
    body = names.tree.body
    if not imports:
        at = end_line(body[top - 1]) if top else 0
        lines.put(at, *([""] if top else []), "import os", *([] if top else [""]))
        return
    if not _is_standard(imports[0]):
        lines.put(_above(imports[0], lines), "import os", "")
        return
    last = imports[0]
    for one in imports:
        apart = any(map(is_blank, lines.old[end_line(last) : first_line(one)]))
        if apart:
            break
        if not isinstance(one, ast.Import) or one.names[0].name > "os":
            lines.put(_above(one, lines), "import os")
            return
        last = one
    lines.put(end_line(last), "import os")


def _above(node: ast.stmt, lines: Lines) -> int:
    """The line of an import, or of the comments glued to it."""
    line = first_line(node)
    while line and is_comment(lines.old[line - 1]):
        line -= 1
    return line or first_line(node)


def _is_standard(node: ast.stmt) -> bool:
    name = ""
    if isinstance(node, ast.Import):
        name = node.names[0].name
    elif isinstance(node, ast.ImportFrom) and not node.level:
        name = node.module or ""
    return name.split(".")[0] in sys.stdlib_module_names


def unit(names: Names, lines: Lines) -> str:
    """One level of indentation in this file."""
    for one in names.parent:
        parent = names.parent[one]
        if parent is not None and lines.begins_line(one):
            outer = indent_of(lines.old[first_line(parent)])
            inner = indent_of(lines.old[first_line(one)])
            if inner.startswith(outer) and len(inner) > len(outer):
                return inner[len(outer) :]
    return " " * 4
