"""What already stands behind a switch: the variable's, or one of SGLang's own."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from patchkit.recipe.debugcode.names import Function, Names, blocks, inside
from patchkit.recipe.debugcode.switch import Switch, is_text
from patchkit.source import marked_by

#: Reasons that need no telling: nothing is left to do.
BEHIND_THE_VARIABLE = "it is behind EAGLE3_DEBUG already"
PATCHKITS = "it holds lines of patchkit's own"
SGLANGS = "it is behind a switch of SGLang's own"

_JUMPS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass
class Switched:
    """``dead``: an ``if`` whose body does not run while the variable is unset;
    ``live``: one whose ``else`` does not; ``declared``: functions that return at once.
    ``opaque``: statements not to be looked into, and why; ``sglangs``: what each switch
    of SGLang's own rules, which may be tracing of its own or real code."""

    dead: set[ast.If] = field(default_factory=set)
    live: set[ast.If] = field(default_factory=set)
    declared: set[ast.stmt] = field(default_factory=set)
    opaque: dict[ast.stmt, str] = field(default_factory=dict)
    sglangs: list[list[ast.stmt]] = field(default_factory=list)


def find_switched(names: Names, lines: list[str]) -> Switched:
    found = Switched()
    switch = Switch(names)
    marked = {n for n, line in enumerate(lines, 1) if marked_by(line.encode())}
    for one in names.parent:
        if marked and not marked.isdisjoint(_lines_of(one)):
            found.opaque[one] = PATCHKITS
    for block in [names.tree.body, *(b for s in names.parent for b in blocks(s))]:
        for index, one in enumerate(block):
            if not isinstance(one, ast.If):
                continue
            leaves = isinstance(one.body[-1], _JUMPS)
            if is_sglangs(one.test):
                rest = block[index + 1 :] if leaves else []
                found.sglangs.append([one, *rest])
                continue
            unset = switch.when_unset(one.test)
            if unset is False:
                found.dead.add(one)
            elif unset and leaves:
                function = names.parent[one]
                before = [x for x in block[:index] if not is_text(x)]
                if isinstance(function, Function) and not before:
                    found.declared.add(function)
            elif unset:
                found.live.add(one)
    return found


def behind(found: Switched, names: Names) -> dict[ast.stmt, str]:
    """The statements that do not run while the variable is unset, and the functions
    that only these call."""
    hidden: list[ast.stmt] = []
    for head in found.dead:
        hidden += [head, *head.body]
    for head in found.live:
        hidden += [head, *head.orelse]
    for function in found.declared:
        hidden += [function, *inside(function)]
    heads = found.dead | found.live
    every: set[ast.stmt] = set()
    for one in hidden:
        every |= {one} if one in heads else {one, *inside(one)}
    functions = {
        variable: stores[0].statement
        for variable, stores in names.stores.items()
        if len(stores) == 1 and isinstance(stores[0].statement, Function)
    }
    grew = True
    while grew:
        grew = False
        for variable, function in functions.items():
            readers = {one.statement for one in names.loads.get(variable, ())}
            if function not in every and readers and readers <= every:
                every |= {function, *inside(function)}
                grew = True
    return dict.fromkeys(every, BEHIND_THE_VARIABLE)


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def is_sglangs(test: ast.expr) -> bool:
    """A test on ``envs.SGLANG_...``, or on an environment variable of that name."""
    return any(
        (isinstance(one, ast.Name) and one.id == "envs")
        or (isinstance(one, ast.Constant) and str(one.value).startswith("SGLANG_"))
        for one in ast.walk(test)
    )
