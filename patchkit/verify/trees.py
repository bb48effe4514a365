"""The files to run: the tree as it is, and the baseline it is compared with."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import Refused, UsageError
from patchkit.fetch import fetch_wheel
from patchkit.journal.plumbing import GitFailed, git
from patchkit.verify.jobs import MODULES, module_name
from patchkit.verify.scratch import Scratch
from patchkit.workspace import files
from patchkit.workspace.tree import Workspace

#: Run in every job; a tree in which one is missing can't be run.
CORE = tuple(
    name.split(".", 1)[1].replace(".", "/") + ".py" for name in MODULES.values()
)
#: Above this many differing modules the baseline gets a probe of its own: most of
#: sglang would have to be imported anew in every worker.
FEW = 40
_VERSIONS = ("version.py", "_version.py")

Files = Mapping[str, bytes | None]


@dataclass(frozen=True)
class Trees:
    """Bytes by path relative to the package; ``None``: no such file.

    ``elsewhere``: the baseline's own package, where it is another tree altogether.
    """

    patched: Files
    baseline: Files
    name: str
    elsewhere: Path | None = None

    @property
    def same(self) -> bool:
        return self.elsewhere is None and self.patched == self.baseline

    def modules(self) -> list[str]:
        return [module_name(path) for path in {**self.patched, **self.baseline}]


def write_overlay(tree: Files, folder: Path) -> dict[str, str | None]:
    """Write ``tree`` below ``folder``; module -> its file there."""
    overlay: dict[str, str | None] = {}
    for path, data in sorted(tree.items()):
        file = folder / path
        if data is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        overlay[module_name(path)] = None if data is None else str(file)
    return overlay


@contextmanager
def find_trees(workspace: Workspace, baseline: str) -> Iterator[Trees]:
    """``baseline``: ``journal``, ``git:REV`` or ``pypi:VERSION``.

    Call it inside ``workspace.reading()``. Raises UsageError or Refused where there is
    no such baseline.
    """
    kind, _, name = baseline.partition(":")
    if kind == "journal" and not name:
        yield _from_journal(workspace)
        return
    if kind == "git" and name:
        theirs = _git_files(workspace, name)
    elif kind == "pypi" and name:
        theirs = _wheel_files(name)
    else:
        raise UsageError(
            f"--baseline {baseline}: there is no such baseline",
            hint="give journal, git:REV or pypi:VERSION",
        )
    package = workspace.target.package
    ours = {
        path.relative_to(package).as_posix(): path.read_bytes()
        for path in package.rglob("*.py")
    }
    code = {path for path in theirs if path.endswith(".py")}
    differing = {
        path
        for path in {*ours, *code}
        if ours.get(path) != theirs.get(path) and path not in _VERSIONS
    }
    if len(differing) <= FEW:
        paths = sorted({*differing, *CORE})
        yield Trees(
            {path: ours.get(path) for path in paths},
            {path: theirs.get(path) for path in paths},
            baseline,
        )
        return
    with Scratch("baseline") as folder:
        elsewhere = folder / "sglang"
        for path, data in theirs.items():  # kernels look for sources beside them
            (elsewhere / path).parent.mkdir(parents=True, exist_ok=True)
            (elsewhere / path).write_bytes(data)
        core = {path: ours.get(path) for path in CORE}
        changed = _from_journal(workspace).patched
        yield Trees(
            {**core, **changed},
            {path: theirs.get(path) for path in CORE},
            baseline,
            elsewhere,
        )


def _from_journal(workspace: Workspace) -> Trees:
    package = workspace.target.package
    owned = [path for path in workspace.owned_paths() if path.endswith(".py")]
    marked = {} if workspace.recorded.recipes else workspace.foreign_marks()
    paths = dict.fromkeys([*CORE, *owned, *marked])
    patched = {path: files.read(package, path) for path in paths}
    missing = [path for path in CORE if patched[path] is None]
    if missing:
        raise Refused(
            f"{', '.join(missing)}: missing from {package}",
            hint="restore the file (git checkout, or reinstall SGLang)",
        )
    baseline = dict(patched)
    recorded = workspace.contents().original
    for path in owned:
        baseline[path] = recorded.get(path)
    unproven = []
    for path, standing in workspace.standings(list(marked)).items():
        baseline[path] = standing.original
        if not standing.fresh:
            unproven.append(path)
    if unproven:
        raise Refused(
            f"{', '.join(unproven)}: marked without a journal, and the original can't"
            " be proven",
            hint="give --baseline pypi:VERSION or git:REV",
        )
    return Trees(patched, baseline, "journal")


def _git_files(workspace: Workspace, revision: str) -> dict[str, bytes]:
    if workspace.checkout is None:
        raise UsageError(
            f"--baseline git:{revision}: the target is no git checkout",
            hint="give --baseline pypi:VERSION",
        )
    prefix = workspace.target.prefix
    try:
        if revision.startswith("-"):
            raise GitFailed("a revision does not begin with a dash")
        packed = git(
            ["archive", "--format=tar", revision, "--", prefix],
            where=workspace.checkout.top,
        )
    except GitFailed as problem:
        raise UsageError(
            f"--baseline git:{revision}: {problem.message}",
            hint="give a commit, tag or branch in which the package is",
        ) from None
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.isfile():
                file = archive.extractfile(member)
                assert file is not None
                found[member.name[len(prefix) + 1 :]] = file.read()
    return found


def _wheel_files(version: str) -> dict[str, bytes]:
    with zipfile.ZipFile(fetch_wheel(version)) as wheel:
        return {
            name[len("sglang/") :]: wheel.read(name)
            for name in wheel.namelist()
            if name.startswith("sglang/") and not name.endswith("/")
        }
