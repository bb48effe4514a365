"""Reads a log while it is written: a file that may be rotated or cut, or a pipe."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable
from pathlib import Path

from patchkit.errors import UsageError
from patchkit.watch.lines import Splitter

#: Of a log that is longer than twice this when it is opened, the middle is left out.
MUCH = 32 << 20
#: Bytes taken at once, so that a long log does not hold up everything else.
CHUNK = 1 << 20
#: Bytes at the end of a log in which a line with a stamp is looked for.
LAST = 1 << 16


class LogFile:
    """Follows a path. What is there at first is old, what comes later is fresh.
    ``sink`` gets every byte; the first ``skip`` are left out.

    Raises UsageError for a folder or a file that may not be read; one that is not
    there yet is waited for.
    """

    ended = False

    def __init__(
        self,
        path: Path,
        sink: Callable[[bytes], None] | None = None,
        skip: int = 0,
    ) -> None:
        self.path = path
        self._sink = sink
        self._splitter = Splitter()
        self._file: int | None = None
        #: the file that was here before a rotation
        self._before: int | None = None
        self._key = (0, 0)
        self._offset = 0
        self._old = -1
        self._written = 0.0
        if path.is_dir():
            raise UsageError(f"--log {path} is a folder", hint="name the log file")
        self._open()
        if self._file is None:
            self._old = 0  # it will all be new
        elif skip:
            self._offset = os.lseek(self._file, skip, os.SEEK_SET)

    @property
    def waiting(self) -> bool:
        """Whether there is no such file yet."""
        return self._file is None

    def read(self) -> tuple[list[str], bool]:
        """The lines that came, and whether they are fresh."""
        if self._file is None:
            self._open()
            if self._file is None:
                return [], True
        fresh = self._offset >= self._old
        room = CHUNK if fresh else min(CHUNK, self._old - self._offset)
        if os.fstat(self._file).st_size < self._offset:
            # cut short, as logrotate's copytruncate does
            self._offset = self._old = 0
            self._splitter = Splitter()
            os.lseek(self._file, 0, os.SEEK_SET)
            fresh = True
        if self._offset >= MUCH and self._old - self._offset > MUCH:
            self._offset = os.lseek(self._file, self._old - MUCH, os.SEEK_SET)
            room = CHUNK
        data = os.read(self._file, room)
        self._offset += len(data)
        if not data and self._before is not None:
            # moved away, but its writer may have it open still
            data, fresh = os.read(self._before, CHUNK), True
        if data:
            if self._sink is not None:
                self._sink(data)
            return self._splitter.feed(data), fresh
        if self._was_rotated():
            if self._before is not None:
                os.close(self._before)
            self._before, self._file = self._file, None
            self._old = 0
            self._open()
        return [], True

    @property
    def caught_up(self) -> bool:
        return self._file is None or self._offset >= max(self._old, 0)

    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the file that is open."""
        return None if self._file is None else self._key

    def before(self) -> tuple[bytes, float]:
        """The end of what was there at first, and when that was written (seconds since
        the epoch)."""
        if self._file is None or self._old <= 0:
            return b"", 0.0
        length = min(self._old, LAST)
        return os.pread(self._file, length, self._old - length), self._written

    def close(self) -> None:
        for file in (self._file, self._before):
            if file is not None:
                os.close(file)
        self._file = self._before = None

    def _open(self) -> None:
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise UsageError(
                f"--log {self.path} can't be read: {problem.strerror}",
                hint="give a log that you may read, or - for stdin",
            ) from None
        found = os.fstat(self._file)
        self._key = (found.st_dev, found.st_ino)
        self._offset = 0
        if self._old < 0:
            self._old, self._written = found.st_size, found.st_mtime

    def _was_rotated(self) -> bool:
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            return False  # moved away, and the new one is not there yet
        return (now.st_dev, now.st_ino) != self._key


class LogPipe:
    """Reads a log that another process writes into a pipe: ``server 2>&1 | ...``."""

    waiting = False
    caught_up = True

    def __init__(self, file: int) -> None:
        self._file = file
        self._splitter = Splitter()
        self.ended = False

    def read(self) -> tuple[list[str], bool]:
        if self.ended or not select.select([self._file], [], [], 0)[0]:
            return [], True
        data = os.read(self._file, CHUNK)
        if data:
            return self._splitter.feed(data), True
        self.ended = True
        return self._splitter.end(), True

    def identity(self) -> tuple[int, int] | None:
        found = os.fstat(self._file)
        if stat.S_ISCHR(found.st_mode):
            return None  # a terminal, or /dev/null: what else writes to it says nothing
        return found.st_dev, found.st_ino

    def close(self) -> None:
        pass


Log = LogFile | LogPipe


def open_log(name: str) -> Log:
    """ "-" is stdin; a path may be a pipe, as in ``--log <(kubectl logs -f pod)``.
    Raises UsageError for what no server writes."""
    if name == "-":
        return LogPipe(0)
    path = Path(name)
    if path.is_fifo():
        return LogPipe(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UsageError(
            f"--log {name} is a device, and no log",
            hint="name the log file, or give - for stdin",
        )
    return LogFile(path)
