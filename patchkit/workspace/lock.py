"""One patchkit at a time in one target."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from patchkit.errors import Busy, Refused
from patchkit.journal.store import give_to_owner_of

NAME = "lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock in ``folder`` (made if needed). Raises Busy or Refused.

    The kernel drops a flock when its holder dies, so a stale lock recovers by itself;
    the file only says who holds it. A folder that holds nothing but the lock is
    removed again.
    """
    path = folder / NAME
    if folder.is_symlink():
        raise Refused(
            f"{folder} is a link, which patchkit does not follow",
            hint="remove it, or make it a folder",
        )
    try:
        descriptor = _lock(folder, path)
    except OSError as problem:
        with suppress(OSError):  # made just now, for nothing
            folder.rmdir()
        raise Refused(
            f"{folder} can't be written: {problem.strerror}",
            hint="patchkit keeps its journal there; make it writable, or run as the"
            " user who owns the tree",
        ) from None
    try:
        os.ftruncate(descriptor, 0)
        with suppress(OSError):  # a full disk: a lock without a name is a lock
            os.pwrite(descriptor, f"{os.getpid()} {time.time():.0f}\n".encode(), 0)
        yield
    finally:
        if os.listdir(folder) == [NAME]:
            path.unlink()
            folder.rmdir()
        os.close(descriptor)


def _lock(folder: Path, path: Path) -> int:
    while True:
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            # others' `patchkit status` must be able to look, whatever our umask
            os.chmod(folder, folder.parent.stat().st_mode & 0o777)
        try:
            # a link there could name any file, and we write and chown
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                os.close(descriptor)
                raise OSError(errno.EINVAL, f"{NAME} in it is not a plain file")
            for new in (folder, descriptor):
                give_to_owner_of(folder.parent, new)
        except FileNotFoundError:
            continue  # its last holder just removed the folder
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.pread(descriptor, 100, 0).split()
            os.close(descriptor)
            raise _busy(said, path) from None
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass  # we locked a file that its last holder just removed
        os.close(descriptor)


def _busy(said: list[bytes], path: Path) -> Busy:
    who = "another patchkit"
    with suppress(ValueError):  # whatever else the file may hold
        pid, since = map(int, said)
        who += f" (pid {pid}, for {max(0, int(time.time()) - since)} s)"
    return Busy(
        f"{who} is at work in this target",
        hint=f"wait for it; it holds {path}, which frees itself when it ends",
    )
