"""What is applied, and how the files stand."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.errors import PatchkitError
from patchkit.model import TAP_FOLDER, Applied, FileState
from patchkit.registry import tap_digest
from patchkit.workspace.tree import Workspace

#: Worst first: a recipe stands as its worst file does.
_WORST = (
    FileState.FOREIGN,
    FileState.MISSING,
    FileState.REPLACED,
    FileState.OVERWRITTEN,
    FileState.DRIFTED,
    FileState.OUTDATED,
    FileState.APPLIED,
    FileState.NOT_NEEDED,
    FileState.NOT_APPLIED,
)


@dataclass(frozen=True)
class FileStatus:
    path: str
    state: FileState


@dataclass(frozen=True)
class RecipeStatus:
    name: str
    version: int
    options: dict[str, str]
    state: FileState
    files: tuple[FileStatus, ...]
    detail: str = ""


def why_outdated(workspace: Workspace, one: Applied) -> str:
    """Why applying ``one`` again would make something else of the originals; "" if it
    would not."""
    try:
        info = workspace.registry.recorded(one)
    except PatchkitError:
        return f"its recipe file is gone, or broken (it was in {one.origin})"
    if info.version != one.version:
        return f"the recipe is at version {info.version} now"
    if info.digest != one.digest:
        return "the recipe has changed since"
    if info.uses_tap and workspace.recorded.tap != tap_digest():
        return "the tap has changed since"
    return ""


def read_status(workspace: Workspace) -> tuple[RecipeStatus, ...]:
    """One entry a recipe: the applied ones, then those that could be.

    Call it inside ``workspace.reading()``. A tree that carries marks without a
    journal is reported under the names in its marks.
    """
    state = workspace.recorded
    standings = workspace.standings(workspace.owned_paths())
    found = []
    for one in state.recipes:
        outdated = why_outdated(workspace, one)
        files = []
        for path, record in state.files.items():
            if one.name not in record.recipes:
                continue
            now = standings[path].state
            if outdated and now is FileState.APPLIED:
                now = FileState.OUTDATED
            files.append(FileStatus(path, now))
        for row in state.sites:
            if row["recipe"] == one.name and row["status"] == "NOT_NEEDED":
                files.append(FileStatus(row["path"], FileState.NOT_NEEDED))
        found.append(
            RecipeStatus(
                one.name,
                one.version,
                dict(one.options),
                _worst(files),
                tuple(files),
                outdated,
            )
        )
    known = {one.name for one in found}
    if not state.recipes:
        found += _foreign(workspace)
        known = {one.name for one in found}
    for info in workspace.registry.near():
        if info.name not in known:
            found.append(
                RecipeStatus(info.name, info.version, {}, FileState.NOT_APPLIED, ())
            )
    return tuple(found)


def _foreign(workspace: Workspace) -> list[RecipeStatus]:
    files: dict[str, list[FileStatus]] = {}
    proven: dict[str, bool] = {}
    marks = workspace.foreign_marks()
    marking = {name for names in marks.values() for name in names if name != "tap"}
    for path, names in marks.items():
        ok = path.startswith(TAP_FOLDER) or workspace.standings([path])[path].fresh
        for name in sorted(marking) if names == ("tap",) and marking else names:
            files.setdefault(name, []).append(FileStatus(path, FileState.FOREIGN))
            proven[name] = proven.get(name, True) and ok
    return [
        RecipeStatus(
            name,
            0,
            {},
            FileState.FOREIGN,
            tuple(files[name]),
            "marks without a journal; without them the files are proven to be the"
            " original ones: apply adopts them, revert removes them"
            if proven[name]
            else "marks without a journal, and the original files can't be proven:"
            " restore them first",
        )
        for name in sorted(files)
    ]


def _worst(files: list[FileStatus]) -> FileState:
    states = {one.state for one in files}
    return next((one for one in _WORST if one in states), FileState.APPLIED)


def needs_attention(recipes: tuple[RecipeStatus, ...]) -> bool:
    """Whether ``status --check`` says no."""
    fine = (FileState.APPLIED, FileState.NOT_APPLIED, FileState.NOT_NEEDED)
    return any(one.state not in fine for one in recipes)
