"""From a wanted set of recipes to a Plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial

from patchkit.compose import Composition, Member, canonical, compose
from patchkit.errors import Refused, UsageError
from patchkit.journal.state import digest
from patchkit.model import (
    TAP_FOLDER,
    Applied,
    FileState,
    Outcome,
    RecipeInfo,
    Status,
)
from patchkit.registry import load, tap_digest, tap_files
from patchkit.workspace import files
from patchkit.workspace.planning import Plan, plan_files, take_originals
from patchkit.workspace.standing import Standing
from patchkit.workspace.tree import Workspace

NOT_APPLIED = FileState.NOT_APPLIED

Requests = Sequence[tuple[RecipeInfo, Mapping[str, str]]]


def plan_apply(workspace: Workspace, requests: Requests) -> Plan:
    """Add recipes to the set (or change their options, or renew them)."""
    wanted = {one.name: one for one in workspace.recorded.recipes}
    for info, options in requests:
        wanted[info.name] = _applied(info, options)
    _refuse_to_drop_foreign(workspace, wanted)
    return _plan(workspace, "apply", wanted, tuple(info.name for info, _ in requests))


def plan_reapply(workspace: Workspace) -> Plan:
    """The same set with today's recipes, tap and SGLang files."""
    workspace.refuse_foreign()
    wanted = {}
    for one in workspace.recorded.recipes:
        wanted[one.name] = _applied(workspace.registry.recorded(one), one.options)
    return _plan(workspace, "reapply", wanted, tuple(wanted))


def plan_revert(workspace: Workspace, names: Sequence[str]) -> Plan:
    """Take recipes out of the set; no names: all of them, and foreign marks too."""
    known = {one.name: one for one in workspace.recorded.recipes}
    for name in names:
        if name not in known and workspace.registry.find(name) is None:
            workspace.registry.get(name)  # raises, with the nearest names
    if names:
        workspace.refuse_foreign()
    if names and not known.keys() & set(names):
        return _nothing(workspace, "revert", tuple(names))
    left = {k: v for k, v in known.items() if names and k not in names}
    gone = tuple(name for name in known if name not in left)
    return _plan(workspace, "revert", left, gone)


def _plan(
    workspace: Workspace,
    action: str,
    wanted: Mapping[str, Applied],
    names: tuple[str, ...],
) -> Plan:
    infos = _infos(workspace, wanted)
    _refuse_exclusive(infos, workspace.recorded.recipes)
    if action != "revert" and _is_current(workspace, wanted, infos):
        return _nothing(workspace, action, names)
    tap = dict(tap_files()) if any(i.uses_tap for i in infos) else {}
    paths = dict.fromkeys(workspace.owned_paths())
    paths.update(dict.fromkeys(p for info in infos for p in info.files))
    if not workspace.recorded.recipes and action == "revert":
        paths.update(dict.fromkeys(workspace.foreign_marks()))
    paths.update(dict.fromkeys(tap))
    standings = workspace.standings(list(paths))
    for path in [p for info in infos for p, _ in info.absent if p in standings]:
        if standings[path].data is None and standings[path].state is NOT_APPLIED:
            del standings[path]
    _refuse_missing(workspace, standings)
    recorded = workspace.contents()
    originals, new_epoch = take_originals(standings, workspace.recorded, recorded)
    composition = _compose(workspace, originals, infos, wanted, tap)
    kept, epoch = _kept(workspace, wanted, composition, infos), workspace.recorded.epoch
    changed = plan_files(
        standings,
        workspace.recorded,
        recorded,
        originals,
        composition,
        applying=action != "revert",
    )
    version = workspace.target.version
    if not new_epoch and action == "revert":
        version = workspace.recorded.version
    return Plan(
        action=action,
        previous=workspace.recorded,
        recipes=tuple(sorted(kept, key=lambda one: one.name)),
        files=changed,
        outcomes=composition.outcomes,
        epoch=epoch + 1 if new_epoch else epoch,
        version=version,
        tap=tap_digest() if TAP_FOLDER + "/__init__.py" in composition.files else "",
        names=names,
    )


def _infos(workspace: Workspace, wanted: Mapping[str, Applied]) -> list[RecipeInfo]:
    infos = [workspace.registry.recorded(one) for one in wanted.values()]
    try:
        return canonical(infos)
    except ValueError as problem:
        raise UsageError(str(problem), hint="look at their `after`") from None


def _refuse_exclusive(infos: Sequence[RecipeInfo], standing: Sequence[Applied]) -> None:
    """Raise Refused if one of the recipes excludes another."""
    names = {info.name for info in infos}
    pairs = {
        tuple(sorted((info.name, other)))
        for info in infos
        for other in {*info.excludes} & names
    }
    if pairs:
        applied = sorted(
            {name for pair in pairs for name in pair} & {one.name for one in standing}
        )
        raise Refused(
            "; ".join(f"{one} and {other} exclude each other" for one, other in pairs),
            hint=f"patchkit revert {' '.join(applied)} first, or leave the other out"
            if applied
            else "apply one of them",
        )


def _surroundings(workspace: Workspace, info: RecipeInfo) -> dict[str, bytes]:
    package = workspace.target.package
    return {
        path.relative_to(package).as_posix(): path.read_bytes()
        for pattern in info.looks_at
        for path in sorted(package.glob(pattern))
        if path.is_file()
    }


def _is_current(
    workspace: Workspace, wanted: Mapping[str, Applied], infos: Sequence[RecipeInfo]
) -> bool:
    """Whether the tree is this set already, decided without importing recipes."""
    if not wanted or {one.name: one for one in workspace.recorded.recipes} != dict(
        wanted
    ):
        return False
    if any(info.digest != wanted[info.name].digest for info in infos):
        return False
    if workspace.recorded.tap and workspace.recorded.tap != tap_digest():
        return False
    if workspace.recorded.version != workspace.target.version:
        return False
    return all(
        digest(files.read(workspace.target.package, path)) == record.written
        for path, record in workspace.recorded.files.items()
        if record.recipes
    )


def _nothing(workspace: Workspace, action: str, names: tuple[str, ...]) -> Plan:
    state = workspace.recorded
    return Plan(
        action=action,
        previous=state,
        recipes=state.recipes,
        files=(),
        epoch=state.epoch,
        version=state.version,
        tap=state.tap,
        names=names,
    )


def _compose(
    workspace: Workspace,
    originals: Mapping[str, bytes | None],
    infos: Sequence[RecipeInfo],
    wanted: Mapping[str, Applied],
    tap: Mapping[str, bytes],
) -> Composition:
    members = []
    if infos:
        # LibCST costs more than a whole revert: only where recipes run
        from patchkit import engine

        for info in infos:
            recipe, options = load(info), wanted[info.name].options
            problem = engine.check_options(recipe, options)
            if problem:
                raise UsageError(
                    f"{info.name}: {problem}",
                    hint=f"patchkit show {info.name} lists its options",
                )
            run = partial(
                engine.apply,
                recipe,
                options=options,
                surroundings=_surroundings(workspace, info),
            )
            members.append(Member(info, run))
    composition = compose(originals, members, tap)
    if composition.failures:
        raise _refusal(composition.failures)
    return composition


def _kept(
    workspace: Workspace,
    wanted: Mapping[str, Applied],
    composition: Composition,
    infos: Sequence[RecipeInfo],
) -> list[Applied]:
    """Recipes that did something; one that is NOT_NEEDED everywhere is not applied."""
    digests = {info.name: info for info in infos}
    busy = {name for owners in composition.owners.values() for name in owners}
    return [
        _applied(digests[name], one.options)
        for name, one in wanted.items()
        if name in busy
    ]


def _refuse_to_drop_foreign(
    workspace: Workspace, wanted: Mapping[str, Applied]
) -> None:
    """A tree without its journal is adopted whole: its options are not known."""
    if workspace.recorded.recipes:
        return
    marks = workspace.foreign_marks().values()
    dropped = {name for names in marks for name in names} - {"tap", *wanted}
    if dropped:
        names = " ".join(sorted(dropped))
        raise Refused(
            f"this tree carries the marks of {names} without a journal",
            hint=f"apply {names} in the same command to keep it, or patchkit revert"
            " first",
        )


def _refuse_missing(workspace: Workspace, standings: Mapping[str, Standing]) -> None:
    missing = [
        path
        for path, one in standings.items()
        if one.data is None
        and one.state is FileState.NOT_APPLIED
        and not path.startswith(TAP_FOLDER + "/")
    ]
    if missing:
        raise Refused(
            f"{', '.join(missing)}: missing from {workspace.target.package}",
            hint="restore the file (git checkout, or reinstall SGLang)",
        )
    folder = workspace.target.package / TAP_FOLDER
    if os.path.lexists(folder) and not folder.is_dir():
        raise Refused(
            f"{TAP_FOLDER} is there and is no folder",
            hint="move it away: the tap is put there",
        )


def _applied(info: RecipeInfo, options: Mapping[str, str]) -> Applied:
    return Applied(
        info.name,
        info.version,
        dict(options),
        info.digest,
        info.origin,
        info.inserts_only,
    )


def _refusal(failures: Sequence[Outcome]) -> Refused:
    details = []
    for outcome in failures:
        for site in outcome.failures:
            line = f":{site.line}" if site.line else ""
            details.append(
                f"{outcome.path}{line}: {outcome.recipe}: {site.name}:"
                f" {site.status.value}: {site.detail}"
            )
            if site.nearest:
                details.append(f"    nearest: {site.nearest}")
    missing = all(one.status is Status.ANCHOR_MISSING for one in failures)
    recipes = ", ".join(sorted({one.recipe for one in failures}))
    what = "does not fit this tree" if missing else "can't be applied"
    return Refused(
        f"{recipes} {what}; nothing was written",
        hint="this tree has a shape that the recipe does not know: is it a fork, or"
        " newer than this patchkit?"
        if missing
        else "see the reasons above",
        details=tuple(details),
    )
