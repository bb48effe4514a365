"""How much of a checkpoint each rank has, by its open files and memory maps.

SGLang goes through a checkpoint's files in the order of their names, several at once
in newer releases, and maps them (``safe_open``), or reads them whole. So what a rank
has is every file in front of the first that it has open, and of the open ones the part
that is in its memory, or that it has read.
"""

from __future__ import annotations

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
    """``files``: name -> bytes, in the order in which they are read."""

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
    _most: dict[tuple[str, int], int] = field(default_factory=dict)

    def look(self, pids: Iterable[int]) -> dict[int, int]:
        """pid -> bytes that it has of the checkpoint at hand."""
        opened = {pid: self._opened(pid) for pid in pids}
        for files in opened.values():
            for path in files:
                self._choose(path)
        if self.checkpoint is None:
            return {}
        found = {}
        for pid, files in opened.items():
            key = (self.checkpoint.folder, pid)
            done = self._done(self.checkpoint, files)
            if done is not None:
                self._most[key] = max(done, self._most.get(key, 0))
            if key in self._most:
                found[pid] = self._most[key]
        return found

    def _choose(self, path: str) -> None:
        """The checkpoint that was opened last is the one at hand."""
        folder = os.path.dirname(path)
        if folder not in self._folders:
            self._folders[folder] = read_checkpoint(Path(folder))
            self.checkpoint = self._folders[folder]

    def _done(self, checkpoint: Checkpoint, files: dict[str, int]) -> int | None:
        mine = {
            os.path.basename(path): have
            for path, have in files.items()
            if os.path.dirname(path) == checkpoint.folder
        }
        names = list(checkpoint.files)
        known = [name for name in names if name in mine]
        if not known:
            return None
        in_front = names[: names.index(known[0])]
        return sum(checkpoint.files[name] for name in in_front) + sum(
            min(mine[name], checkpoint.files[name]) for name in known
        )

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
    for one in sorted(folder.iterdir()):
        if _WEIGHTS.search(one.name):
            sizes[one.name] = one.stat().st_size
    preferred = {k: v for k, v in sizes.items() if k.endswith(".safetensors")}
    return Checkpoint(str(folder), preferred or sizes)
