"""Reads a target's files, and writes them atomically and hard-link safe."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from patchkit.errors import Refused
from patchkit.journal.store import give_to_owner_of
from patchkit.model import TAP_FOLDER

#: Temporary files of ours, beside the file they will replace.
TEMPORARY = ".patchkit-tmp-"


def real_path(package: Path, path: str) -> Path:
    """Where ``path`` really lies. Raises Refused if a link leads out of the target."""
    if path.startswith(TAP_FOLDER + "/") and (package / TAP_FOLDER).is_symlink():
        raise Refused(
            f"{TAP_FOLDER} is a link", hint="remove it: patchkit makes its own folder"
        )
    real = Path(os.path.realpath(package / path))
    if not real.is_relative_to(package):
        raise Refused(
            f"{path} is a link to {real}, outside the target",
            hint="patch the tree that file belongs to, or replace the link by a copy"
            " (uv: --link-mode=copy)",
        )
    return real


def read(package: Path, path: str) -> bytes | None:
    """The file's bytes; ``None`` if there is no such file. Raises Refused."""
    real = real_path(package, path)
    try:
        if not stat.S_ISREG(os.stat(real).st_mode):
            raise Refused(
                f"{path} is not a regular file", hint="is this an SGLang tree?"
            )
        return real.read_bytes()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except OSError as problem:
        raise Refused(
            f"{path} can't be read: {problem.strerror}",
            hint="run patchkit as the user who owns the tree",
        ) from None


def check_writable(package: Path, changes: Mapping[str, bytes | None]) -> list[str]:
    """Why files can't be written, one line each."""
    problems = []
    for path in changes:
        real = real_path(package, path)
        folder = real.parent
        while not folder.exists():
            folder = folder.parent
        for what, name in ((real, path), (folder, f"the folder of {path}")):
            if not what.exists():
                continue
            mode = what.stat().st_mode
            # root may write anything, but a file without write bits is so on purpose
            if not mode & 0o222 or not os.access(what, os.W_OK):
                problems.append(f"{name} is read-only ({stat.filemode(mode)})")
                break
    return problems


def write_all(
    package: Path,
    changes: Mapping[str, bytes | None],
    expected: Mapping[str, bytes | None],
) -> list[str]:
    """Write every file of ``changes`` (``None``: remove it); what else was done.

    All temporary files are complete and synced before the first is renamed, so a full
    disk changes nothing. Then each file must still be what was ``expected`` when the
    change was planned: somebody's editor may have saved it meanwhile. New files come
    first and removals last: no moment at which a patched file imports what is not
    there. Raises Refused if nothing was written, OSError if it failed between two
    renames (the journal's pending entry knows).
    """
    ready: list[tuple[Path, Path]] = []
    made: list[Path] = []
    writes = {p: data for p, data in changes.items() if data is not None}
    order = sorted(writes, key=lambda path: (real_path(package, path).exists(), path))
    try:
        for path in order:
            real = real_path(package, path)
            if not real.parent.exists():
                real.parent.mkdir()
                made.append(real.parent)
                # as open as the folder it is in, whatever the umask: servers of
                # other users import it
                os.chmod(real.parent, real.parent.parent.stat().st_mode & 0o777)
                give_to_owner_of(real.parent.parent, real.parent)
            ready.append((_prepare(real, writes[path]), real))
        _check_unchanged(package, changes, expected)
    except (OSError, Refused) as problem:
        for temporary, _ in ready:
            temporary.unlink(missing_ok=True)
        for folder in reversed(made):
            folder.rmdir()
        if isinstance(problem, Refused):
            raise
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise Refused(
            f"{path} can't be written: {problem.strerror}; nothing was changed",
            hint="make room on the disk" if full else "check its folder's permissions",
        ) from None
    for temporary, real in ready:
        os.replace(temporary, real)
    removed = [real_path(package, p) for p, data in changes.items() if data is None]
    for real in removed:
        real.unlink(missing_ok=True)
    if any(data is None for data in changes.values()):
        _remove_tap_folder(package)
    for folder in {real.parent for _, real in ready} | {one.parent for one in removed}:
        _sync_folder(folder)
    notes = []
    for path in changes:
        notes += _drop_shadowing_bytecode(real_path(package, path), path)
    return notes


def _check_unchanged(
    package: Path,
    changes: Mapping[str, bytes | None],
    expected: Mapping[str, bytes | None],
) -> None:
    changed = [path for path in changes if read(package, path) != expected[path]]
    if changed:
        raise Refused(
            f"{', '.join(changed)} was changed by somebody else while patchkit was at"
            " work; nothing was written",
            hint="run it again",
        )


def _prepare(real: Path, data: bytes) -> Path:
    """A synced temporary file beside ``real`` with its mode and owner."""
    handle, name = tempfile.mkstemp(prefix=TEMPORARY, dir=real.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            _keep_mode_and_owner(real, file.fileno())
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _keep_mode_and_owner(real: Path, descriptor: int) -> None:
    try:
        old = os.stat(real)
    except FileNotFoundError:
        os.fchmod(descriptor, real.parent.stat().st_mode & 0o666)
        give_to_owner_of(real.parent, descriptor)
        return
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        # a group member may write the file but not give it away
        with suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _sync_folder(folder: Path) -> None:
    if not folder.exists():
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_tap_folder(package: Path) -> None:
    """The tap's folder, once only bytecode is left in it."""
    folder = package / TAP_FOLDER
    cache = folder / "__pycache__"
    if not folder.is_dir() or any(one != cache for one in folder.iterdir()):
        return
    if cache.is_dir():
        for compiled in cache.glob("*.pyc"):
            compiled.unlink()
        try:
            cache.rmdir()
        except OSError:
            return
    folder.rmdir()


def _drop_shadowing_bytecode(real: Path, path: str) -> list[str]:
    """Remove ``unchecked-hash`` bytecode (PEP 552), which hides any edit."""
    notes = []
    for compiled in real.parent.glob(f"__pycache__/{real.stem}.*.pyc"):
        try:
            with open(compiled, "rb") as file:
                head = file.read(8)
        except OSError:
            continue
        # bit 0: hash-based, bit 1: compare with the source
        if len(head) == 8 and int.from_bytes(head[4:8], "little") & 0b11 == 0b01:
            compiled.unlink()
            notes.append(
                f"removed {compiled.name} beside {path}: unchecked-hash bytecode"
                " would have hidden the edit"
            )
    return notes


def remove_leftovers(package: Path, paths: list[str]) -> None:
    """Temporary files and empty folders of ours that a kill left behind."""
    for folder in {(package / path).parent for path in paths}:
        for leftover in folder.glob(TEMPORARY + "*"):
            leftover.unlink(missing_ok=True)
    _remove_tap_folder(package)
