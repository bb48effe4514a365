"""revert: on a scratch copy, taking everything out and putting it back is exact."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from patchkit.errors import PatchkitError
from patchkit.verify.verdict import Check, Tally, not_applicable
from patchkit.workspace import files
from patchkit.workspace.planner import plan_apply, plan_revert
from patchkit.workspace.status import why_outdated
from patchkit.workspace.tree import Workspace
from patchkit.workspace.writer import execute

#: What makes a folder an SGLang tree, and says which.
_NEEDED = ("__init__.py", "version.py", "_version.py", "srt/__init__.py")


def check_revert(workspace: Workspace) -> Check:
    """Reverts a copy and applies again, with the journal's own recipes and options.

    Where the tree has drifted (edits of the user's on top), the revert must keep
    these; they are compared with what applying and reverting keeps of them. What an
    older recipe or tap made is not made again.
    """
    recipes = workspace.recorded.recipes
    if not recipes:
        return not_applicable("revert", "no recipe is applied")
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="patchkit-revert-") as folder:
        package = _copy(workspace, Path(folder))
        copy = Workspace(package, workspace.registry)
        stale = [one for one in recipes if why_outdated(workspace, one)]
        try:
            _round_trip(workspace, copy, tally, again=not stale)
        except PatchkitError as problem:
            tally.expect(False, problem.message)
    said = f"{len(workspace.owned_paths())} files, byte for byte, on a copy"
    if stale:
        names = ", ".join(one.name for one in stale)
        said += f"; not applied again: {names} is outdated (patchkit reapply)"
    return tally.check("revert", said)


def _round_trip(
    workspace: Workspace, copy: Workspace, tally: Tally, *, again: bool
) -> None:
    paths = workspace.owned_paths()
    before = {path: files.read(copy.target.package, path) for path in paths}
    recorded = workspace.contents()
    names = [one.name for one in workspace.recorded.recipes]
    with copy.writing():
        execute(copy, plan_revert(copy, []), commit=False)
    reverted = {path: files.read(copy.target.package, path) for path in paths}
    for path in paths:
        if before[path] == recorded.written.get(path) == recorded.patched.get(path):
            tally.expect(
                reverted[path] == recorded.original.get(path),
                f"{path}: reverting {', '.join(names)} does not give its original",
            )
    if not again:
        return
    wanted = [
        (workspace.registry.recorded(one), one.options)
        for one in workspace.recorded.recipes
    ]
    with copy.writing():
        execute(copy, plan_apply(copy, wanted), commit=False)
    for path in paths:
        tally.expect(
            files.read(copy.target.package, path) == before[path],
            f"{path}: applying again does not give the same bytes",
        )


def _copy(workspace: Workspace, folder: Path) -> Path:
    """The patched files and the journal, as an installed tree would have them."""
    target = workspace.target
    package = folder / "sglang"
    named = [path for info in workspace.registry.near() for path in info.files]
    for path in {*_NEEDED, *workspace.owned_paths(), *named}:
        data = files.read(target.package, path)
        if data is not None:
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            (package / path).write_bytes(data)
    (package / "__init__.py").touch()
    for info in target.package.parent.glob("sglang-*.dist-info"):
        (folder / info.name).mkdir()
        for name in ("METADATA", "RECORD"):
            if (info / name).exists():
                shutil.copyfile(info / name, folder / info.name / name)
    shutil.copytree(target.journal, folder / ".patchkit")
    for lock in (folder / ".patchkit").glob("*lock*"):
        if lock.is_file():
            lock.unlink()
    return package
