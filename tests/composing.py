"""Sets of recipes on real trees, in process: the plans, journal and writes are those of
the commands. Stock files get some hand-written debug code first, so that the recipes
for that have something to do."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from support import stock

from patchkit import engine
from patchkit.errors import Refused
from patchkit.model import RecipeInfo
from patchkit.registry import Registry
from patchkit.workspace.planner import plan_apply, plan_revert
from patchkit.workspace.tree import Workspace
from patchkit.workspace.writer import execute

#: file -> a line to plant, and the line of the release that it goes in front of
DEBUG = {
    "srt/models/deepseek_v2.py": (
        b'        print("positions", positions.shape)\n',
        b"        hidden_states = self.model(",
    ),
    "srt/models/llama_eagle3.py": (
        b'        print("hidden_states", hidden_states.shape)\n',
        b"        if hidden_states.shape[-1] != embeds.shape[-1]:\n",
    ),
}


class Tree:
    """A scratch copy of a release's files; what recipes make of it."""

    def __init__(self, release: str, folder: Path) -> None:
        shutil.copytree(stock(release), folder)
        self.package = folder / "sglang"
        for path, (line, anchor) in DEBUG.items():
            file = self.package / path
            data = file.read_bytes()
            assert data.count(anchor) >= 1, f"{release}: nowhere to plant in {path}"
            file.write_bytes(data.replace(anchor, line + anchor, 1))

    def apply(self, names: Iterable[str]) -> None:
        """Raises Refused."""
        workspace = Workspace(self.package, Registry())
        with workspace.writing():
            wanted = [(workspace.registry.get(name), {}) for name in names]
            execute(workspace, plan_apply(workspace, wanted))

    def apply_in_turn(self, names: Iterable[str]) -> None:
        """One after the other; one that is not needed before another is there (a gate
        around a capture that a recipe inserts) is not recorded, so it comes again."""
        wanted = list(names)
        for name in wanted:
            self.apply([name])
        for name in wanted:
            if name not in self.applied():
                self.apply([name])

    def revert(self, names: Iterable[str]) -> None:
        workspace = Workspace(self.package, Registry())
        with workspace.writing():
            execute(workspace, plan_revert(workspace, list(names)))

    def applied(self) -> set[str]:
        workspace = Workspace(self.package, Registry())
        with workspace.reading():
            return {one.name for one in workspace.recorded.recipes}

    def files(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.package).as_posix(): path.read_bytes()
            for path in sorted(self.package.rglob("*.py"))
        }


def recipes() -> dict[str, RecipeInfo]:
    return {info.name: info for info in Registry().near()}


def exclude_each_other(one: str, other: str) -> bool:
    infos = recipes()
    return other in infos[one].excludes or one in infos[other].excludes


def remember_engine() -> None:
    """The engine is pure: what it made once it need not make again."""
    original = engine.apply

    @cache
    def remembered(recipe, source, path, options, around):
        return original(recipe, source, path, dict(options), dict(around))

    def apply(recipe, source, path, options=None, surroundings=None):
        around = tuple(sorted((surroundings or {}).items()))
        return remembered(
            recipe, source, path, tuple(sorted((options or {}).items())), around
        )

    engine.apply = apply


def check_pair(tree: Tree, one: str, other: str, alone: dict[str, dict]) -> str:
    """Apply two recipes in both orders, take each away first: "" or what is wrong.

    ``alone``: the files with one recipe only; the stock files under "".
    """
    if exclude_each_other(one, other):
        return _refused(tree, one, other, alone)
    tree.apply_in_turn([one, other])
    both = tree.files()
    tree.revert([one])
    if tree.files() != alone[other]:
        return f"{one} taken from both leaves not what {other} alone makes"
    tree.apply_in_turn([other, one])
    if tree.files() != both:
        return "the order in which they are applied matters"
    tree.apply([one, other])
    if tree.files() != both:
        return "applying both again changes something"
    tree.revert([other])
    if tree.files() != alone[one]:
        return f"{other} taken from both leaves not what {one} alone makes"
    tree.revert([])
    return "" if tree.files() == alone[""] else "a full revert is not exact"


def _refused(tree: Tree, one: str, other: str, alone: dict[str, dict]) -> str:
    try:
        tree.apply([one, other])
    except Refused as problem:
        if one in problem.message and other in problem.message:
            return "" if tree.files() == alone[""] else "a refusal wrote something"
        return f"refused without both names: {problem.message}"
    tree.revert([])
    return "they exclude each other, and were applied together"
