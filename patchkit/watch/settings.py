"""What a verdict depends on, besides what is seen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Until(str, Enum):
    READY = "ready"
    WEIGHTS = "weights"
    GRAPHS = "graphs"
    END = "end"  # goes on after ready


@dataclass(frozen=True)
class Settings:
    """``stall`` and ``timeout`` in seconds. ``request``: whether READY is only believed
    once a request was answered, within ``deadline`` seconds; ``url``: where to, if that
    is the user's word, and not read from the log; ``key``: whether one is sent."""

    until: Until = Until.READY
    stall: float = 60.0
    timeout: float = 1800.0
    deadline: float = 20.0
    has_log: bool = True
    request: bool = True
    url: str = ""
    key: bool = False
