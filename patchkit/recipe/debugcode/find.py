"""Finds hand-written debug code: what prints, and what only feeds that."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from patchkit.recipe.debugcode.effects import DUMPS, Effects, Wanted, shown
from patchkit.recipe.debugcode.evidence import Evidence
from patchkit.recipe.debugcode.names import Function, Names, Variable, blocks, inside
from patchkit.recipe.debugcode.statements import Statements
from patchkit.recipe.debugcode.switch import Switch
from patchkit.recipe.debugcode.switched import (
    BEHIND_THE_VARIABLE,
    PATCHKITS,
    SGLANGS,
    Switched,
    behind,
    find_switched,
)


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


class Finder:
    """``resolve``: whether an ``if`` on the variable is itself debug code (to remove
    it), or hides what is in it (to gate the rest)."""

    def __init__(
        self, tree: ast.Module, lines: list[str], wanted: Wanted, *, resolve: bool
    ):
        self.names = Names(tree)
        self.effects = Effects(self.names, wanted)
        switched = find_switched(self.names, lines)
        self.kept: dict[ast.stmt, str] = {}
        self.switched = switched if resolve else Switched()
        if not resolve:
            switched.opaque |= behind(switched, self.names)
        self.opaque = switched.opaque
        for block in switched.sglangs:
            if self._only_traces(block):
                for piece in (p for one in block for p in (one, *inside(one))):
                    self.opaque.setdefault(piece, SGLANGS)
        self.statements = Statements(
            self.names, self.effects, self.opaque, self.switched.declared
        )
        for one in [*self.switched.dead, *self.switched.live]:
            why = self._keeps(one)
            if why:
                self.kept[one] = why
                self.switched.dead.discard(one)
                self.switched.live.discard(one)
        self.evidence = Evidence(self.names, self.effects, self.statements)

    def _only_traces(self, block: list[ast.stmt]) -> bool:
        """Whether code prints, and else only binds locals: SGLang's own tracing."""
        prints = False
        for one in (piece for s in block for piece in (s, *inside(s))):
            if isinstance(one, ast.Expr):
                call = one.value
                if not isinstance(call, ast.Call) or not self.effects.is_output(call):
                    return False
                prints = True
            elif isinstance(one, ast.Return):
                if one.value is not None:
                    return False
            elif any(v.kind != "local" for v in self.names.stored[one]) or not (
                isinstance(one, (ast.Assign, ast.Pass)) or list(blocks(one))
            ):
                return False
        return prints

    def _keeps(self, node: ast.If) -> str:
        """Why an ``if`` on the variable can't be resolved."""
        gone = node.body if node in self.switched.dead else node.orelse
        every = [piece for one in gone for piece in (one, *inside(one))]
        if any(self.opaque.get(one) == PATCHKITS for one in every):
            return PATCHKITS
        for part in Switch(self.names).decisive(node.test):
            found = self.effects.reason(part, [])
            if found:
                return found
        for one in gone:
            for call in ast.walk(one):
                if isinstance(call, (ast.Yield, ast.YieldFrom, ast.Await)):
                    return "it yields"
                said = self.effects.is_output(call) if isinstance(call, ast.Call) else 0
                if isinstance(said, str) and said.endswith(DUMPS):
                    return said
        return ""

    def find(self, pinned: Iterable[ast.stmt] = ()) -> DebugCode:
        """``pinned``: statements that the caller can't edit."""
        fixed = {
            one
            for node in self.switched.dead
            for one in node.body
        } | {one for node in self.switched.live for one in node.orelse}  # fmt: skip
        heads = self.switched.dead | self.switched.live
        hold = set(pinned)
        candidates = fixed | {
            one
            for one in self.names.parent
            if one not in hold
            and not hold & set(inside(one))
            and not self.statements.reason(one)
        }
        while True:
            self._begin(candidates, fixed, heads)
            self._grow()
            if self.chosen == candidates:
                break
            candidates = self.chosen
        found = DebugCode(
            self.names, self.chosen, self.switched.dead, self.switched.live
        )
        found.left = self._left(found, hold)
        return found

    # -- one round ----------------------------------------------------------------

    def _begin(
        self, candidates: set[ast.stmt], fixed: set[ast.stmt], heads: set[ast.If]
    ) -> None:
        self.candidates = candidates
        self.heads = heads
        self.chosen = set(fixed)
        self.needed: set[Variable] = set()
        self._fine: dict[Variable, bool] = {}
        for one in fixed:
            self._need(one)
        for head in heads:
            self.needed |= set(self.names.loaded[head])

    def _grow(self) -> None:
        grew = True
        while grew:
            grew = False
            for one in self.candidates - self.chosen:
                if self._belongs(one):
                    self.chosen.add(one)
                    self._need(one)
                    grew = True

    def _need(self, statement: ast.stmt) -> None:
        for one in (statement, *inside(statement)):
            self.needed |= set(self.names.loaded[one])

    def _belongs(self, statement: ast.stmt) -> bool:
        fact = self.statements.facts[statement]
        if fact.kind == "compound":
            return self._compound_belongs(statement)
        if fact.kind in ("pass", "jump", "text", "wait", "return"):
            return False
        fine = all(self._is_fine(one) for one in fact.writes)
        if fact.sinks and fact.kind != "function":
            return fine
        return bool(fact.writes) and fine and self.needed.issuperset(fact.writes)

    def _compound_belongs(self, statement: ast.stmt) -> bool:
        every = list(inside(statement))
        if not self.statements.facts[statement].sinks and not any(
            one in self.chosen for one in every
        ):
            return False
        return self._fits(statement, {statement, *every})

    def _fits(self, statement: ast.stmt, around: set[ast.stmt]) -> bool:
        """Whether it may go with the compound statement that ``around`` makes up."""
        if statement in self.chosen:
            return True
        fact = self.statements.facts[statement]
        if fact.reason:
            return False
        if not all(self._stays_inside(one, around) for one in fact.writes):
            return False
        if fact.kind == "jump":
            return self.statements.outer(statement) in around
        if fact.kind == "pass":
            # one that stands beside code that is gone shows what was there before
            return isinstance(self._arm(statement), ast.ExceptHandler)
        if fact.kind == "compound":
            return all(
                self._fits(one, around) for block in blocks(statement) for one in block
            )
        return True

    def _arm(self, statement: ast.stmt) -> ast.AST | None:
        parent = self.names.parent[statement]
        for handler in getattr(parent, "handlers", ()):
            if statement in handler.body:
                return handler  # type: ignore[no-any-return]
        return parent

    def _stays_inside(self, variable: Variable, around: set[ast.stmt]) -> bool:
        return (variable.kind == "local" or self._is_fine(variable)) and all(
            one.statement in around or self._is_candidate(one.statement)
            for one in self.names.loads.get(variable, ())
        )

    def _is_candidate(self, statement: ast.stmt) -> bool:
        return statement in self.heads or any(
            one in self.candidates for one in self.names.ancestors(statement)
        )

    def _is_fine(self, variable: Variable) -> bool:
        """Whether only debug code reads a variable that debug code made."""
        if variable not in self._fine:
            self._fine[variable] = self.evidence.is_debug(variable) and all(
                self._is_candidate(one.statement)
                for one in self.names.loads.get(variable, ())
            )
        return self._fine[variable]

    # -- what is left alone -------------------------------------------------------

    def _left(
        self, found: DebugCode, pinned: set[ast.stmt]
    ) -> list[tuple[ast.stmt, str]]:
        # a dump is told where it stands
        left = [item for item in self.kept.items() if not item[1].endswith(DUMPS)]
        for one in self.names.parent:
            if found.is_covered(one) or isinstance(one, Function):
                continue
            if one not in self.kept and self._prints(one):
                why = self.opaque.get(one) or self.statements.facts[one].reason
                if one in pinned:
                    why = "it shares its line with other code"
                if why not in (BEHIND_THE_VARIABLE, PATCHKITS):
                    left.append((one, why or "only part of it is debug code"))
        for variable in self.needed:
            left += self._feeders(variable, found)
        return sorted(left, key=lambda item: item[0].lineno)

    def _prints(self, statement: ast.stmt) -> bool:
        return any(
            isinstance(call, ast.Call)
            and self.effects.is_output(call)
            and self.effects.callee(call) not in self.effects.printing
            for part in ast.iter_child_nodes(statement)
            if isinstance(part, ast.expr)
            for call in ast.walk(part)
        )

    def _feeders(
        self, variable: Variable, found: DebugCode
    ) -> list[tuple[ast.stmt, str]]:
        if variable.kind != "local" or variable in self.names.parameters:
            return []
        if not all(
            found.is_covered(one.statement) or one.statement in self.heads
            for one in self.names.loads.get(variable, ())
        ):
            return []
        return [
            (one.statement, f"only debug code reads `{variable.name}`, but {why}")
            for one in self.names.stores.get(variable, ())
            if not found.is_covered(one.statement)
            and isinstance(one.statement, (ast.Assign, ast.AnnAssign))
            for why in [
                self.statements.facts[one.statement].reason
                or "it may be the release's own"
            ]
            if why != PATCHKITS
        ]


def describe(statement: ast.stmt, why: str) -> str:
    """``print(x.pop())``: why, for a report."""
    if isinstance(statement, ast.If):
        return f"`if {shown(statement.test)[1:]}: {why}"
    return f"{shown(statement)}: {why}"
