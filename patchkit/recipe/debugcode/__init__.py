"""Finds the debug code that people write by hand into the three files, puts it behind
``EAGLE3_DEBUG``, or takes it out. Pure: text to text.

``words`` and ``effects`` say what prints and what only looks, ``names`` who reads
what, ``find`` what is debug code, ``gate`` and ``remove`` edit lines.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from patchkit.recipe.debugcode.constant import is_ours
from patchkit.recipe.debugcode.effects import Wanted
from patchkit.recipe.debugcode.find import Finder
from patchkit.recipe.debugcode.found import describe
from patchkit.recipe.debugcode.gate import Gate
from patchkit.recipe.debugcode.remove import Removal


@dataclass(frozen=True)
class Edited:
    """``places``: the lines (1-based) that were changed; ``left``: what looks like
    debug code and was left alone, as (line of the edited text, code: reason);
    ``gated``: whether the constant was there before."""

    text: str
    places: tuple[int, ...]
    left: tuple[tuple[int, str], ...]
    gated: bool


def wanted(
    pattern: str = "", calls: str = "", dumps: bool = False, ships_logger: bool = True
) -> Wanted:
    """``pattern``: a regular expression, "" for none; raises re.error. ``calls``: a
    list with commas."""
    return Wanted(
        re.compile(pattern) if pattern else None,
        frozenset(one.strip() for one in calls.split(",") if one.strip()),
        dumps,
        ships_logger,
    )


def gate_debug_code(text: str, also: Wanted) -> Edited:
    # making a logger costs nothing, and is no debug output
    return _edit(text, replace(also, ships_logger=True), Gate)


def remove_debug_code(text: str, also: Wanted) -> Edited:
    return _edit(text, also, Removal)


def _edit(text: str, also: Wanted, kind: type[Gate] | type[Removal]) -> Edited:
    finder = Finder(
        ast.parse(text), text.split("\n"), also, resolve=kind is Removal
    )  # fmt: skip
    pinned: list[ast.stmt] = []
    while True:
        code = finder.find(pinned)
        edit = kind(code, text)
        unowned = edit.unowned()
        if not unowned:
            break
        pinned += unowned
    done = edit.result()
    places = [one.lineno for one in (*code.outermost(), *code.dead, *code.live)]
    where = edit.lines.place
    left = [
        (where.get(one.lineno, one.lineno), describe(one, why))
        for one, why in code.left
    ]
    if done == text:
        places = []
    gated = any(map(is_ours, finder.names.tree.body))
    return Edited(done, tuple(sorted(places)), tuple(left), gated)
