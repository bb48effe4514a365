"""Temporary folders that go with the run that made them, however that ends.

A folder holds a file that its maker keeps locked; the kernel drops the lock with its
holder. So the next run knows which folders nobody will remove any more, and removes
them: none that is another's, none without that file. What engines put into shared
memory is named after the folder, and goes with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path
from types import FrameType, TracebackType

PREFIX = "patchkit-"
LOCK = ".held"
#: Shared memory, by its name and by that of its semaphores (Linux).
MEMORY = Path("/dev/shm")
_MEMORIES = ("{name}-*", "sem.{name}-*")
#: Where sockets are, if the folder's path is too long for theirs.
SHORT = Path("/tmp")
_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Scratch:
    """``folder``, until ``close``. A signal that would end this process without a word
    ends it by SystemExit meanwhile, so that it is closed."""

    def __init__(self, kind: str) -> None:
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        self._lock = _held(self.folder)
        self._before = _let_end()

    def close(self) -> None:
        remove(self.folder)
        os.close(self._lock)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def sockets(folder: Path) -> Path:
    """A folder for ``folder``'s sockets where paths are short; it goes with it."""
    return SHORT / folder.name


def sweep() -> None:
    """Remove what runs left behind that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(folder)
            finally:
                os.close(lock)


def remove(folder: Path) -> None:
    """With what is named after it; its lock last, so that a kill in between leaves
    what the next run finds."""
    for pattern in _MEMORIES:
        for file in MEMORY.glob(pattern.format(name=folder.name)):
            with contextlib.suppress(OSError):
                file.unlink()
    if sockets(folder) != folder and _is_ours(sockets(folder)):
        shutil.rmtree(sockets(folder), ignore_errors=True)
    with contextlib.suppress(OSError):
        for one in folder.iterdir():
            if one.name == LOCK:
                continue
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(one, ignore_errors=True)
            else:
                one.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.lstat().st_uid == os.geteuid() and not folder.is_symlink()
    return False


def _held(folder: Path) -> int:
    """Locked before it has its name: nobody finds it free."""
    made = folder / f"{LOCK}.new"
    lock = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    made.rename(folder / LOCK)
    return lock


def _let_end() -> dict[int, signal.Handlers]:
    """The handlers that stood there before, where nobody else has set any."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found: dict[int, signal.Handlers] = {}
    for number in _ENDS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
            found[number] = signal.SIG_DFL
    return found


def _end(number: int, frame: FrameType | None) -> None:
    for one in _ENDS:  # what follows is not to be disturbed
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)
