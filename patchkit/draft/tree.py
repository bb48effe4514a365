"""What an SGLang tree has for drafts, read from its source."""

from __future__ import annotations

import difflib
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchkit.verify import order

_MODELS = "srt/models"
_ENTRY = re.compile(rb"^EntryClass\s*(?::[^=\n]+)?=\s*(\[[^\]]*\]|\w+)", re.MULTILINE)
#: A model that reads what the worker hands to a draft.
_DRAFT = b"spec_info.hidden_states"
_RUNNERS = ("srt/model_executor", "srt/speculative")
_CONFIG = "srt/configs/model_config.py"

Files = Mapping[str, bytes | None]


@dataclass(frozen=True)
class Tree:
    """``entries``: class -> module below ``sglang.srt.models``; ``drafts``: those that
    read a draft's input. ``runner``: source of what configures a draft. ``setters``:
    see ``patchkit.verify.order``."""

    package: Path
    entries: Mapping[str, str]
    drafts: frozenset[str]
    runner: str
    setters: tuple[str, ...]

    def mentions(self, field: str) -> bool:
        """Whether the runners, or the draft workers, name a field."""
        return re.search(rf"\b{re.escape(field)}\b", self.runner) is not None

    def near(self, name: str) -> list[str]:
        """Draft classes of this tree with a name like that one."""
        return difflib.get_close_matches(name, sorted(self.drafts), 2, 0.6)


def read_tree(package: Path, overlay: Files) -> Tree:
    """``overlay``: files of the tree that are to be taken as if they were these."""
    entries: dict[str, str] = {}
    drafts: set[str] = set()
    for file in sorted((package / _MODELS).glob("*.py")):
        data = overlay.get(f"{_MODELS}/{file.name}") or file.read_bytes()
        for found in _ENTRY.finditer(data):
            names = re.findall(r"\w+", found.group(1).decode())
            entries |= dict.fromkeys(names, file.stem)
            if _DRAFT in data:
                drafts |= set(names)
    sources = [
        overlay.get(file.relative_to(package).as_posix()) or file.read_bytes()
        for file in _sources(package)
    ]
    return Tree(
        package,
        entries,
        frozenset(drafts),
        b"\n".join(sources).decode("utf-8", "replace"),
        tuple(_setters(package, overlay)),
    )


def _sources(package: Path) -> list[Path]:
    found = [file for one in _RUNNERS for file in sorted((package / one).rglob("*.py"))]
    config = package / _CONFIG
    return [*found, config] if config.is_file() else found


def _setters(package: Path, overlay: Files) -> list[str]:
    folder = _RUNNERS[0]
    changed = {k: v for k, v in overlay.items() if v and k.startswith(folder + "/")}
    if not changed:
        return order.setters(package)
    with tempfile.TemporaryDirectory(prefix="patchkit-runners-") as copy:
        shutil.copytree(package / folder, Path(copy, folder))
        for path, data in changed.items():
            Path(copy, path).write_bytes(data)
        return order.setters(Path(copy))
