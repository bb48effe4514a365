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
    problems: tuple[str, ...] = ()

    def wants_site(self, site: str) -> bool:
        return any(fnmatchcase(site, glob) for glob in self.sites)

    def wants_rank(self, rank: int) -> bool:
        return self.ranks is None or rank in self.ranks

    def wants_step(self, step: int) -> bool:
        return (step - 1) % self.every == 0


def read(environ: Mapping[str, str]) -> Settings:
    """Settings from ``environ``. Never raises: a bad value becomes a problem."""
    problems: list[str] = []

    every = 1
    text = environ.get("EAGLE3_DEBUG_EVERY", "").strip()
    if text:
        number = _natural(text)
        if number:
            every = number
        else:
            problems.append(
                f"EAGLE3_DEBUG_EVERY={text!r} is not a whole number above 0: using 1"
            )

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

    return Settings(
        enabled=environ.get("EAGLE3_DEBUG", "").strip().lower() not in _OFF,
        every=every,
        ranks=ranks,
        sites=_pieces(environ.get("EAGLE3_DEBUG_SITES", "")) or ("*",),
        directory=os.path.expanduser(environ.get("EAGLE3_DEBUG_DIR", "")) or None,
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
