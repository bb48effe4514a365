"""How much of a checkpoint each rank has, by its open files and memory maps.

SGLang goes through a checkpoint's files one by one, or several at once in newer
releases, in whatever order the folder lists them, and maps them (``safe_open``) or
reads them whole. So what a rank has is every file that it had open and has let go of,
and of those it has open the part that is in its memory, or that it has read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_WEIGHTS = re.compile(r"\.(safetensors|bin|pt|pth|gguf)\Z")
#: Python packages bring files of such names, too.
_ELSEWHERE = re.compile(r"/(site|dist)-packages/|/lib/python3")


@dataclass(frozen=True)
class Checkpoint:
    """``files``: name -> bytes."""

    folder: str
    files: dict[str, int]

    @property
    def size(self) -> int:
        return sum(self.files.values())


@dataclass
class Loading:
    """Feed it the ranks' process ids; it finds the checkpoint by itself."""

    checkpoint: Checkpoint | None = None
    denied: bool = False
    _folders: dict[str, Checkpoint] = field(default_factory=dict)
    #: (folder, pid) -> file -> the most it had of it
    _had: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)

    def look(self, pids: Iterable[int]) -> dict[int, int]:
        """pid -> bytes that it has of the checkpoint at hand. Files that come and go
        between two looks are missed: of a load that fast the log's bar tells more."""
        opened = {pid: self._opened(pid) for pid in pids}
        for files in opened.values():
            for path in files:
                self._choose(path)
        if self.checkpoint is None:
            return {}
        found = {}
        for pid, files in opened.items():
            had = self._had.setdefault((self.checkpoint.folder, pid), {})
            self._count(self.checkpoint, files, had)
            if had:
                found[pid] = sum(had.values())
        return found

    def _choose(self, path: str) -> None:
        """The checkpoint that was opened last is the one at hand."""
        folder = os.path.dirname(path)
        if folder not in self._folders:
            self._folders[folder] = read_checkpoint(Path(folder))
            self.checkpoint = self._folders[folder]

    def _count(
        self, checkpoint: Checkpoint, files: dict[str, int], had: dict[str, int]
    ) -> None:
        now = {
            os.path.basename(path): have
            for path, have in files.items()
            if os.path.dirname(path) == checkpoint.folder
        }
        for name, size in checkpoint.files.items():
            if name in now:
                had[name] = max(had.get(name, 0), min(now[name], size))
            elif name in had:
                had[name] = size  # it has let go of it

    def _opened(self, pid: int) -> dict[str, int]:
        """Path -> bytes that are in memory or were read, of each weights file that a
        process has open or mapped."""
        found: dict[str, int] = {}
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                try:
                    path = os.path.realpath(os.readlink(entry.path))
                except OSError:
                    continue
                if is_weights(path):
                    found[path] = _position(pid, entry.name)
            if maps_weights(pid):
                for path, resident in _resident(pid).items():
                    found[path] = max(resident, found.get(path, 0))
        except PermissionError:
            self.denied = True
        except OSError:
            pass
        return found


def is_weights(path: str) -> bool:
    return bool(_WEIGHTS.search(path)) and not _ELSEWHERE.search(path)


def maps_weights(pid: int) -> bool:
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        return any(is_weights(_mapped(line)) for line in file)


def _mapped(line: str) -> str:
    """The file in the first line of a mapping; "" if there is none."""
    parts = line.rstrip("\n").split(None, 5)
    return parts[5] if len(parts) == 6 else ""


def _resident(pid: int) -> dict[str, int]:
    """Of each mapped weights file the bytes that are in the process's memory."""
    found: dict[str, int] = {}
    path = ""
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            if "-" in line.partition(" ")[0]:
                name = _mapped(line)
                path = os.path.realpath(name) if is_weights(name) else ""
            elif path and line.startswith("Rss:"):
                found[path] = found.get(path, 0) + int(line.split()[1]) * 1024
    return found


def _position(pid: int, file: str) -> int:
    try:
        told = Path(f"/proc/{pid}/fdinfo/{file}").read_text()
    except OSError:
        return 0
    found = re.search(r"^pos:\s+(\d+)", told, re.M)
    return int(found[1]) if found else 0


def read_checkpoint(folder: Path) -> Checkpoint:
    """The weights files of a folder; of several kinds the one that SGLang prefers."""
    sizes: dict[str, int] = {}
    # what is there may go while one looks, as in a temporary folder
    with contextlib.suppress(OSError):
        for one in sorted(folder.iterdir()):
            if _WEIGHTS.search(one.name):
                with contextlib.suppress(OSError):
                    sizes[one.name] = one.stat().st_size
    preferred = {k: v for k, v in sizes.items() if k.endswith(".safetensors")}
    return Checkpoint(str(folder), preferred or sizes)
