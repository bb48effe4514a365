# patchkit: tap
"""What the environment asks for, read once when the package is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

# A plain literal: `patchkit show` reads it from the source without importing torch.
ENVIRONMENT: tuple[tuple[str, str], ...] = (
    ("EAGLE3_DEBUG", "1 turns the taps on; unset, empty, 0, false, no, off: nothing"),
    ("EAGLE3_DEBUG_EVERY", "N: only every N-th step of each model, from the first"),
    ("EAGLE3_DEBUG_RANKS", "0,3: only these global ranks; default all"),
    ("EAGLE3_DEBUG_SITES", "glob[,glob]: only sites whose name matches; default all"),
    ("EAGLE3_DEBUG_DIR", "folder for JSON lines, one file per process; default none"),
    (
        "EAGLE3_DEBUG_SAVE",
        "glob:N[,glob:N]: the first N tensors of each site that matches go to"
        " safetensors files in EAGLE3_DEBUG_DIR; default none",
    ),
    ("EAGLE3_DEBUG_SAVE_MB", "megabytes that a process saves at most; default 256"),
    (
        "EAGLE3_DEBUG_RING",
        "records (64 bytes each) that a GPU may be ahead of the log; default 32768",
    ),
)

_OFF = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True)
class Settings:
    """``ranks`` None: all ranks. ``problems``: one sentence per bad value."""

    enabled: bool = False
    every: int = 1
    ranks: frozenset[int] | None = None
    sites: tuple[str, ...] = ("*",)
    directory: str | None = None
    saves: tuple[tuple[str, int], ...] = ()
    save_bytes: int = 256 << 20
    ring: int = 32768
    problems: tuple[str, ...] = ()

    def wants_site(self, site: str) -> bool:
        return any(fnmatchcase(site, glob) for glob in self.sites)

    def saved(self, site: str) -> int:
        """How many tensors of ``site`` to save."""
        return max((n for glob, n in self.saves if fnmatchcase(site, glob)), default=0)

    def wants_rank(self, rank: int) -> bool:
        return self.ranks is None or rank in self.ranks

    def wants_step(self, step: int) -> bool:
        return (step - 1) % self.every == 0


def read(environ: Mapping[str, str]) -> Settings:
    """Settings from ``environ``. Never raises: a bad value becomes a problem."""
    problems: list[str] = []

    def count(name: str, default: int) -> int:
        text = environ.get(name, "").strip()
        number = _natural(text) if text else default
        if number:
            return number
        problems.append(
            f"{name}={text!r} is not a whole number above 0: using {default}"
        )
        return default

    every = 1
    every = count("EAGLE3_DEBUG_EVERY", every)
    megabytes = count("EAGLE3_DEBUG_SAVE_MB", 256)
    records = count("EAGLE3_DEBUG_RING", 32768)

    ranks: frozenset[int] | None = None
    text = environ.get("EAGLE3_DEBUG_RANKS", "").strip()
    if text:
        numbers = [_natural(piece) for piece in _pieces(text)]
        good = [number for number in numbers if number is not None]
        if good and len(good) == len(numbers):
            ranks = frozenset(good)
        else:
            problems.append(
                f"EAGLE3_DEBUG_RANKS={text!r} is not a list like 0,3: using all ranks"
            )

    saves: list[tuple[str, int]] = []
    for piece in _pieces(environ.get("EAGLE3_DEBUG_SAVE", "")):
        glob, _, text = piece.rpartition(":")
        number = _natural(text)
        if glob and number:
            saves.append((glob, number))
        else:
            problems.append(
                f"EAGLE3_DEBUG_SAVE: {piece!r} is not like llama_eagle3.*:10: not saved"
            )
    directory = os.path.expanduser(environ.get("EAGLE3_DEBUG_DIR", "")) or None
    if saves and directory is None:
        problems.append("EAGLE3_DEBUG_SAVE saves nothing without EAGLE3_DEBUG_DIR")
        saves = []

    return Settings(
        enabled=environ.get("EAGLE3_DEBUG", "").strip().lower() not in _OFF,
        every=every,
        ranks=ranks,
        sites=_pieces(environ.get("EAGLE3_DEBUG_SITES", "")) or ("*",),
        directory=directory,
        saves=tuple(saves),
        save_bytes=megabytes << 20,
        ring=1 << (min(max(records, 64), 1 << 22) - 1).bit_length(),
        problems=tuple(problems),
    )


def _pieces(text: str) -> tuple[str, ...]:
    return tuple(piece.strip() for piece in text.split(",") if piece.strip())


def _natural(text: str) -> int | None:
    # int() would also take "-1", "1_0" and digits of other scripts. The length bound
    # keeps int() itself from raising.
    digits = text.isascii() and text.isdigit() and len(text) < 19
    return int(text) if digits else None


SETTINGS = read(os.environ)
