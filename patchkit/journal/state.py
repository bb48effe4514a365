"""What a journal entry records, as values and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from patchkit import __version__
from patchkit.errors import JournalError
from patchkit.model import Applied

FORMAT = 1


def digest(data: bytes | None) -> str | None:
    return None if data is None else sha256(data).hexdigest()


@dataclass(frozen=True)
class FileRecord:
    """Hashes of one file (``None``: no such file), and the recipes that changed it."""

    original: str | None
    patched: str | None
    written: str | None
    recipes: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """What one journal entry says of the tree."""

    recipes: tuple[Applied, ...] = ()
    files: Mapping[str, FileRecord] = field(default_factory=dict)
    sites: tuple[Mapping[str, Any], ...] = ()
    version: str = "unknown"
    epoch: int = 0
    tap: str = ""
    commit: str = ""
    #: files that were not there when the entry was written, though recorded before
    absent: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        value = {
            "format": FORMAT,
            "patchkit": __version__,
            "epoch": self.epoch,
            "sglang": self.version,
            "tap": self.tap,
            "absent": list(self.absent),
            "recipes": [
                {
                    "name": one.name,
                    "version": one.version,
                    "options": dict(one.options),
                    "digest": one.digest,
                    "origin": one.origin,
                    "inserts_only": one.inserts_only,
                }
                for one in self.recipes
            ],
            "files": {
                path: {
                    "original": one.original,
                    "patched": one.patched,
                    "written": one.written,
                    "recipes": list(one.recipes),
                }
                for path, one in sorted(self.files.items())
            },
            "sites": [dict(one) for one in self.sites],
        }
        return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"

    @staticmethod
    def from_json(data: bytes, commit: str) -> State:
        value = json.loads(data)
        if value["format"] > FORMAT:
            raise JournalError(
                f"the journal was written by a newer patchkit ({value['patchkit']})",
                hint=f"this is {__version__}: upgrade patchkit",
            )
        return State(
            recipes=tuple(
                Applied(
                    name=one["name"],
                    version=one["version"],
                    options=one["options"],
                    digest=one["digest"],
                    origin=one["origin"],
                    inserts_only=one["inserts_only"],
                )
                for one in value["recipes"]
            ),
            files={
                path: FileRecord(
                    one["original"],
                    one["patched"],
                    one["written"],
                    tuple(one["recipes"]),
                )
                for path, one in value["files"].items()
            },
            sites=tuple(value["sites"]),
            version=value["sglang"],
            epoch=value["epoch"],
            tap=value["tap"],
            absent=tuple(value.get("absent", ())),
            commit=commit,
        )


@dataclass(frozen=True)
class Contents:
    """The files of an entry, by kind (original, patched, written, before) and path."""

    original: Mapping[str, bytes]
    patched: Mapping[str, bytes]
    written: Mapping[str, bytes]
    before: Mapping[str, bytes] = field(default_factory=dict)

    def kinds(self) -> Mapping[str, Mapping[str, bytes]]:
        return {
            "original": self.original,
            "patched": self.patched,
            "written": self.written,
            "before": self.before,
        }


@dataclass(frozen=True)
class Entry:
    """One line of ``patchkit log``."""

    commit: str
    time: int
    subject: str
    trailers: tuple[tuple[str, str], ...]
