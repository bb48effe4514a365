"""Finds the logs and reads them in blocks; several of them side by side, in time."""

from __future__ import annotations

import gzip
import heapq
import io
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.errors import PatchkitError, UsageError
from patchkit.logs.landmarks import HEAD
from patchkit.logs.record import Note, Record
from patchkit.logs.stream import Counts, Stream

BLOCK = 1 << 20
#: Seconds between looks at a file that is followed.
POLL = 0.25

Batch = list[Record | Note]


@dataclass
class Found:
    """What the paths of a command are: files of text, and saved tensors."""

    files: list[Path | None] = field(default_factory=list)
    saves: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


def find(paths: Sequence[str]) -> Found:
    """Files as given, folders by what they hold, ``-`` (None) for stdin.

    Raises PatchkitError (3): there is no such file, or nothing of ours in a folder.
    """
    found = Found()
    for one in paths:
        path = Path(one)
        if one == "-":
            found.files.append(None)
        elif path.is_dir():
            found.folders.append(path)
            lines, saves = in_folder(path)
            found.saves += saves
            found.files += lines
            if not lines and not saves:
                raise PatchkitError(
                    f"{one} holds neither JSON lines (*.jsonl) nor saved tensors",
                    hint="give a server's log, or what EAGLE3_DEBUG_DIR named",
                )
        elif not path.exists():
            raise PatchkitError(
                f"there is no {one}", hint="give a log, a folder of JSON lines, or -"
            )
        else:
            found.files.append(path)
    return found


def in_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """JSON lines and saved tensors of a folder, by name."""
    try:
        names = sorted(folder.iterdir())
    except OSError as problem:
        raise _unreadable(folder, problem) from None
    return (
        [one for one in names if one.name.endswith((".jsonl", ".jsonl.gz"))],
        [one for one in names if one.name.endswith(".safetensors")],
    )


def _unreadable(path: Path | None, problem: OSError) -> PatchkitError:
    return PatchkitError(
        f"{path or 'stdin'} can't be read: {problem.strerror or problem}",
        hint="give a log, a folder of JSON lines, or -",
    )


class File:
    """One file that is read: its stream, and what was in it."""

    def __init__(self, path: Path | None, *, follow: bool = False) -> None:
        self.path = path
        self.name = "stdin" if path is None else str(path)
        self.done = False
        self.head = b""
        self.cut = ""
        self.counts: list[Counts] = []
        self._follow = follow
        self._offset = 0
        self._stream: Stream | None = None
        try:
            self._handle = self._open()
        except OSError as problem:
            raise _unreadable(path, problem) from None

    def _open(self) -> io.BufferedReader | gzip.GzipFile:
        file = 0 if self.path is None else self.path
        opened = open(file, "rb", closefd=self.path is not None)  # noqa: SIM115
        # looked at, not taken: a pipe can't go back
        if opened.peek(2)[:2] != b"\x1f\x8b":
            return opened
        if self._follow:
            raise UsageError(
                f"--follow: {self.name} is compressed", hint="leave --follow out"
            )
        return gzip.GzipFile(fileobj=opened)

    @property
    def json_lines(self) -> bool | None:
        """None: nothing was read yet."""
        return None if self._stream is None else self._stream.json_lines

    def read(self) -> Batch:
        """The records of the next block. At the end of the file: ``done``."""
        try:
            block = self._block()
        except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
            self.cut = f"the compressed file is damaged: {problem}"
            block = b""
        except OSError as problem:
            raise _unreadable(self.path, problem) from None
        if not block:
            if self._follow and self.path is not None:
                return self._look_again()
            self.done = True
            return self.close()
        self._offset += len(block)
        return self._feed(block)

    def _block(self) -> bytes:
        # what is there now: of a pipe, and of a compressed file up to the damage
        return self._handle.read1(BLOCK)

    def _feed(self, block: bytes) -> Batch:
        if self._stream is None:
            start = block.lstrip()[:4096]
            json_lines = self.name.endswith((".jsonl", ".jsonl.gz")) or (
                start.startswith(b"{") and b'"site"' in start
            )
            self._stream = Stream(self.name, json_lines=json_lines)
            self.counts.append(self._stream.counts)
        if len(self.head) < HEAD:
            self.head += block[: HEAD - len(self.head)]
        return self._stream.feed(block)

    def close(self) -> Batch:
        """What the end of the file completes."""
        return self._stream.close() if self._stream else []

    def _look_again(self) -> Batch:
        """Of a file that is followed: was it cut, or is another one there?"""
        assert self.path is not None
        try:
            now, ours = os.stat(self.path), os.fstat(self._handle.fileno())
        except OSError:
            return []  # rotated away; the new one is yet to come
        if (now.st_dev, now.st_ino) == (ours.st_dev, ours.st_ino):
            if now.st_size >= self._offset:
                return []
            self._handle.seek(0)
            rest: Batch = []
        else:
            # what came between our last look and the rotation
            rest = self._feed(self._handle.read())
            self._handle.close()
            self._handle = self._open()
        batch = rest + self.close()
        self._offset, self._stream = 0, None
        return batch


def read_all(files: Sequence[File]) -> Iterator[Batch]:
    """The batches of all files; of several, the one that is furthest behind first.

    So ranks that wrote a file each meet at each step, in the memory of a block each.
    """
    if len(files) == 1:
        (one,) = files
        while not one.done:
            yield one.read()
        return
    waiting: list[tuple[float, int, Batch]] = []

    def fill(number: int) -> None:
        while not files[number].done:
            batch = files[number].read()
            if batch:
                heapq.heappush(waiting, (_clock(batch), number, batch))
                return

    for number in range(len(files)):
        fill(number)
    while waiting:
        _, number, batch = heapq.heappop(waiting)
        if not waiting:
            yield batch
            fill(number)
            continue
        until = waiting[0][0]
        end = next(
            (i for i in range(64, len(batch), 64) if _clock(batch[i:]) > until),
            len(batch),
        )
        yield batch[:end]
        if end < len(batch):
            rest = batch[end:]
            heapq.heappush(waiting, (_clock(rest), number, rest))
        else:
            fill(number)


def _clock(batch: Batch) -> float:
    """Seconds; steps where no time is said."""
    first = next((one for one in batch[:64] if isinstance(one, Record)), None)
    if first is None:
        return 0.0
    return float(first.step) if first.time is None else first.time


def follow(
    files: list[File], folders: Sequence[Path], after: Callable[[], None]
) -> Iterator[Batch]:
    """Batches as they come, until KeyboardInterrupt; ``after`` each look at all."""
    known = {one.path for one in files}
    while not all(one.done for one in files) or folders:
        quiet = True
        for one in files:
            while not one.done:
                before = sum(counts.bytes for counts in one.counts)
                yield one.read()
                if sum(counts.bytes for counts in one.counts) == before:
                    break
                quiet = False
                if one.path is None:
                    break
        for folder in folders:
            for path in in_folder(folder)[0]:
                if path not in known:
                    known.add(path)
                    files.append(File(path, follow=True))
        after()
        if quiet:
            time.sleep(POLL)
