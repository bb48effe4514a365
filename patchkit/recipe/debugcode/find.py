"""Finds hand-written debug code: what prints, and what only feeds that."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from patchkit.recipe.debugcode.effects import DUMPS, Effects, Wanted
from patchkit.recipe.debugcode.evidence import Evidence
from patchkit.recipe.debugcode.found import DebugCode, Left
from patchkit.recipe.debugcode.names import Names, Variable, blocks, inside
from patchkit.recipe.debugcode.statements import Statements
from patchkit.recipe.debugcode.switch import Switch
from patchkit.recipe.debugcode.switched import (
    PATCHKITS,
    SGLANGS,
    Switched,
    behind,
    find_switched,
)


class Finder:
    """``resolve``: whether an ``if`` on the variable is itself debug code (to remove
    it), or hides what is in it (to gate the rest)."""

    def __init__(
        self, tree: ast.Module, lines: list[str], wanted: Wanted, *, resolve: bool
    ):
        self.lines = lines
        self.names = Names(tree)
        self.effects = Effects(self.names, wanted)
        switched = find_switched(self.names, lines)
        self.kept: dict[ast.If, str] = {}
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
        self.evidence = Evidence(self.names, self.effects, self.statements, lines)
        self.left = Left(
            self.names,
            self.effects,
            self.statements,
            self.evidence,
            self.opaque,
            self.kept,
            resolve=resolve,
        )

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
        stays = node.orelse if node in self.switched.dead else node.body
        if stays and self.lines[stays[0].lineno - 1][: stays[0].col_offset].strip():
            return "the code that stays is on the line of a test"
        for part in Switch(self.names).decisive(node.test):
            found = self.effects.reason(part, [])
            if found:
                return found
        for one in gone:
            for call in ast.walk(one):
                if isinstance(call, (ast.Yield, ast.YieldFrom, ast.Await)):
                    return "it yields"
                said = self.effects.is_output(call) if isinstance(call, ast.Call) else 0
                if isinstance(call, ast.Call) and self.effects.files.opens(call):
                    said = self.effects.wanted.dumps or f"`open` {DUMPS}"
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
        found.left = self.left.tell(found, self.needed, hold)
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
