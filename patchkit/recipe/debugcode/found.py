"""What was found: the debug code, and what looks like it and is left alone."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from patchkit.recipe.debugcode.effects import DUMPS, Effects, shown
from patchkit.recipe.debugcode.evidence import Evidence
from patchkit.recipe.debugcode.names import Function, Names, Variable, blocks
from patchkit.recipe.debugcode.statements import Statements
from patchkit.recipe.debugcode.switch import mentions
from patchkit.recipe.debugcode.switched import (
    BEHIND_THE_VARIABLE,
    PATCHKITS,
    is_sglangs,
)
from patchkit.recipe.debugcode.words import SOUNDNESS, SYNCHRONIZE, last_name


@dataclass
class DebugCode:
    """``statements``: debug code, each with all inside it; ``dead`` and ``live``: the
    ``if`` statements on the variable that are to be resolved; ``left``: what looks
    like debug code and is left alone, with the reason."""

    names: Names
    statements: set[ast.stmt]
    dead: set[ast.If] = field(default_factory=set)
    live: set[ast.If] = field(default_factory=set)
    left: list[tuple[ast.stmt, str]] = field(default_factory=list)

    def is_covered(self, statement: ast.stmt | None) -> bool:
        return any(one in self.statements for one in self.names.ancestors(statement))

    def outermost(self) -> list[ast.stmt]:
        return [
            one
            for one in self.names.parent
            if one in self.statements and not self.is_covered(self.names.parent[one])
        ]


class Left:
    """``kept``: tests of the variable that can't be resolved, with the reason."""

    def __init__(
        self,
        names: Names,
        effects: Effects,
        statements: Statements,
        evidence: Evidence,
        opaque: Mapping[ast.stmt, str],
        kept: Mapping[ast.If, str],
        *,
        resolve: bool,
    ):
        self.names = names
        self.effects = effects
        self.statements = statements
        self.evidence = evidence
        self.opaque = opaque
        self.kept = kept
        self.resolve = resolve

    def tell(
        self,
        found: DebugCode,
        needed: Iterable[Variable],
        pinned: Collection[ast.stmt],
    ) -> list[tuple[ast.stmt, str]]:
        """By line. ``needed``: what the debug code reads; ``pinned``: what can't be
        edited."""
        left: dict[ast.stmt, str] = {}
        for variable in needed:
            left |= self._feeders(variable, found)
        left |= self._withheld(found)
        for one in self.names.parent:
            if found.is_covered(one) or isinstance(one, Function):
                continue
            parts = [x for x in ast.iter_child_nodes(one) if isinstance(x, ast.expr)]
            parts += [item.context_expr for item in getattr(one, "items", ())]
            if any(map(self._prints, parts)) or any(
                self.effects.files.opens(x) for part in parts for x in ast.walk(part)
            ):
                why = self.opaque.get(one) or self.statements.facts[one].reason
                if one in pinned:
                    why = "it shares its line with other code"
                left[one] = why or "only part of it is debug code"
            elif self._looks_like_debugging(one):
                left[one] = self._looks_like_debugging(one)
            elif (
                self.resolve
                and one not in found.dead | found.live
                and any(map(mentions, parts))
            ):
                left[one] = "it reads the variable, and is no `if` on it alone"
        # a dump is told where it stands
        left |= {one: why for one, why in self.kept.items() if DUMPS not in why}
        return sorted(
            (
                item
                for item in left.items()
                if item[1] not in (BEHIND_THE_VARIABLE, PATCHKITS)
                or item[0] in self.kept
            ),
            key=lambda item: item[0].lineno,
        )

    def _looks_like_debugging(self, node: ast.stmt) -> str:
        """Why what nobody needs in a server is left alone; "" for all else."""
        if self.opaque.get(node):
            return ""
        if self.statements.facts[node].kind == "wait":
            if self._frees_memory(node) or any(
                isinstance(one, ast.If) and is_sglangs(one.test)
                for one in self.names.ancestors(node)
            ):
                return ""  # a release's own
            return (
                "it waits for the GPU, and nothing that is debug code stands around it"
                f" (-O calls={SYNCHRONIZE} counts it as debug code)"
            )
        if isinstance(node, ast.Assert) and any(
            last_name(call.func) in SOUNDNESS
            for call in ast.walk(node.test)
            if isinstance(call, ast.Call)
        ):
            return "an assertion may be meant to end the server: take it out by hand"
        return ""

    def _frees_memory(self, node: ast.stmt) -> bool:
        """Whether it waits for what the cache gives back, as releases do themselves."""
        owner = self.names.parent[node] or self.names.tree
        for block in blocks(owner):
            if node in block[1:]:
                before = block[block.index(node) - 1]
                return isinstance(before, ast.Expr) and any(
                    last_name(call.func) == "empty_cache"
                    for call in ast.walk(before)
                    if isinstance(call, ast.Call)
                )
        return False

    def _withheld(self, found: DebugCode) -> dict[ast.stmt, str]:
        """What only debug code reads here, but other files may need."""
        heads = found.dead | found.live
        left: dict[ast.stmt, str] = {}
        for variable, why in self.evidence.withheld.items():
            readers = {one.statement for one in self.names.loads.get(variable, ())}
            if all(found.is_covered(x) or x in heads for x in readers) and readers:
                left |= dict.fromkeys(
                    (
                        one.statement
                        for one in self.names.stores[variable]
                        if not found.is_covered(one.statement)
                    ),
                    f"only debug code reads `{variable.name}` here, but {why}",
                )
        return left

    def _prints(self, part: ast.expr) -> bool:
        return any(
            isinstance(call, ast.Call)
            and self.effects.is_output(call)
            and self.effects.callee(call) not in self.effects.printing
            for call in ast.walk(part)
        )

    def _feeders(self, variable: Variable, found: DebugCode) -> dict[ast.stmt, str]:
        if variable.kind != "local" or variable in self.names.parameters:
            return {}
        heads = found.dead | found.live
        if not all(
            found.is_covered(one.statement) or one.statement in heads
            for one in self.names.loads.get(variable, ())
        ):
            return {}
        left: dict[ast.stmt, str] = {}
        for one in self.names.stores.get(variable, ()):
            statement = one.statement
            if not found.is_covered(statement) and isinstance(
                statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)
            ):
                why = self.statements.facts[statement].reason
                if why in (BEHIND_THE_VARIABLE, PATCHKITS):
                    continue
                why = why or "it may be the release's own"
                left[statement] = f"only debug code reads `{variable.name}`, but {why}"
        return left


def describe(statement: ast.stmt, why: str) -> str:
    """``print(x.pop())``: why, for a report."""
    if isinstance(statement, ast.If):
        return f"`if {shown(statement.test)[1:]}: {why}"
    return f"{shown(statement)}: {why}"
