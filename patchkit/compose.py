"""originals + the set of applied recipes -> the patched tree. Pure.

A patched tree is a function of the recorded originals and a set of (recipe, options)
in one canonical order, so any order of application and any subset are right by
construction. Edits made since are merged once, by ``merge``'s caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from patchkit.model import Outcome, RecipeInfo, Site, Status


class Apply(Protocol):
    """``engine.apply`` bound to one recipe and its options."""

    def __call__(self, source: bytes, path: str) -> Outcome: ...


@dataclass(frozen=True)
class Member:
    """A recipe of the set, ready to run."""

    info: RecipeInfo
    apply: Apply


@dataclass(frozen=True)
class Composition:
    """``files``: path -> composed bytes, for every file that any recipe names.

    ``owners``: path -> recipes that changed it.
    """

    files: Mapping[str, bytes]
    owners: Mapping[str, tuple[str, ...]]
    outcomes: tuple[Outcome, ...]

    @property
    def failures(self) -> tuple[Outcome, ...]:
        return tuple(one for one in self.outcomes if one.status.failed)


def canonical(recipes: Sequence[RecipeInfo]) -> list[RecipeInfo]:
    """By name, each behind those it declares in ``after``.

    Raises ValueError if they wait for each other.
    """
    waiting = sorted(recipes, key=lambda info: info.name)
    ordered: list[RecipeInfo] = []
    while waiting:
        names = {info.name for info in waiting}
        ready = [
            info for info in waiting if not names & (set(info.after) - {info.name})
        ]
        if not ready:
            raise ValueError(f"recipes wait for each other: {', '.join(sorted(names))}")
        ordered.append(ready[0])
        waiting.remove(ready[0])
    return ordered


def compose(
    originals: Mapping[str, bytes | None],
    members: Sequence[Member],
    tap: Mapping[str, bytes],
) -> Composition:
    """Run ``members`` (in canonical order) over ``originals``.

    ``None`` among the originals is a file that is not there. The tap is added when a
    recipe that uses it changed something.
    """
    files: dict[str, bytes] = {}
    owners: dict[str, tuple[str, ...]] = {}
    outcomes: list[Outcome] = []
    tapped: list[str] = []
    for member in members:
        changed = False
        for path in member.info.files:
            source = files.get(path, originals.get(path))
            if source is None:
                outcomes.append(_missing(member.info, path))
                continue
            outcome = member.apply(source, path)
            outcomes.append(outcome)
            files[path] = outcome.source
            if outcome.source != source:
                owners[path] = (*owners.get(path, ()), member.info.name)
                changed = True
        if changed and member.info.uses_tap:
            tapped.append(member.info.name)
    if tapped:
        files.update(tap)
        owners.update({path: tuple(tapped) for path in tap})
    return Composition(files, owners, tuple(outcomes))


def _missing(recipe: RecipeInfo, path: str) -> Outcome:
    why = dict(recipe.absent).get(path)
    status = Status.REFUSED if why is None else Status.NOT_NEEDED
    site = Site("file", status, 0, why or "the file is missing from this tree")
    return Outcome(recipe.name, path, status, b"", (site,))
