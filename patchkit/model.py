"""The values that pass between patchkit's modules. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType

#: Folder of the tap package, relative to the ``sglang`` package folder.
TAP_FOLDER = "srt/patchkit_tap"
#: Name of the NOT_NEEDED sites that tell what a recipe saw and did not touch, and why.
LEFT_ALONE = "left alone"


class Status(str, Enum):
    """What a recipe found at one anchor, or in one file."""

    CHANGED = "CHANGED"
    ALREADY_APPLIED = "ALREADY_APPLIED"
    NOT_NEEDED = "NOT_NEEDED"
    ANCHOR_MISSING = "ANCHOR_MISSING"
    REFUSED = "REFUSED"

    @property
    def failed(self) -> bool:
        return self in (Status.ANCHOR_MISSING, Status.REFUSED)


class FileState(str, Enum):
    """How a file stands against what the journal last recorded."""

    NOT_APPLIED = "NOT APPLIED"
    APPLIED = "APPLIED"
    OUTDATED = "OUTDATED"
    DRIFTED = "DRIFTED"
    OVERWRITTEN = "OVERWRITTEN"
    REPLACED = "REPLACED"
    FOREIGN = "FOREIGN"
    MISSING = "MISSING"
    NOT_NEEDED = "NOT NEEDED"


@dataclass(frozen=True)
class Site:
    """One anchor of one recipe in one file, and what became of it.

    ``line`` is the 1-based line of the anchor in the file that was read, 0 if none.
    """

    name: str
    status: Status
    line: int = 0
    detail: str = ""
    nearest: str = ""


@dataclass(frozen=True)
class Outcome:
    """What one recipe does to one file: ``source`` is the file after it."""

    recipe: str
    path: str
    status: Status
    source: bytes
    sites: tuple[Site, ...] = ()

    @property
    def failures(self) -> tuple[Site, ...]:
        return tuple(site for site in self.sites if site.status.failed)


@dataclass(frozen=True)
class Option:
    name: str
    default: str
    help: str


@dataclass(frozen=True)
class RecipeInfo:
    """What is known of a recipe without importing it (read from its source)."""

    name: str
    module: str
    class_name: str
    summary: str
    doc: str
    version: int
    files: tuple[str, ...]
    options: tuple[Option, ...]
    environment: tuple[tuple[str, str], ...]
    sites: tuple[tuple[str, str], ...]
    releases: str
    next_step: str
    after: tuple[str, ...]
    inserts_only: bool
    uses_tap: bool
    origin: str
    path: Path
    digest: str
    promises: tuple[tuple[str, str], ...] = ()
    excludes: tuple[str, ...] = ()
    absent: tuple[tuple[str, str], ...] = ()
    looks_at: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    without_draft: tuple[str, ...] = ()


@dataclass(frozen=True)
class Applied:
    """One recipe as it stands in the journal: which version, with which options."""

    name: str
    version: int
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    digest: str = ""
    origin: str = "builtin"
    inserts_only: bool = True


@dataclass(frozen=True)
class Target:
    """The SGLang tree being edited.

    ``package`` is the ``sglang`` folder, ``root`` the folder that paths in diffs are
    relative to (the checkout's top, else the package's parent), ``version`` as the
    tree itself says it ("unknown" if it does not).
    """

    package: Path
    root: Path
    layout: str
    version: str
    journal: Path

    @property
    def prefix(self) -> str:
        """Path of the package relative to ``root``, in POSIX form."""
        return self.package.relative_to(self.root).as_posix()
