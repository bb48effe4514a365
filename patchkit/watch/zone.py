"""The time zone of a process: that of the stamps in its log."""

from __future__ import annotations

from datetime import datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo


def zone_skew(pid: int, stamp: float) -> float | None:
    """What must be added to ``stamp``, local time of process ``pid`` that was read as
    ours, in seconds; ``None`` if its zone can't be known."""
    zone = _zone_of(pid)
    if zone is None:
        return None
    told = datetime.fromtimestamp(stamp)
    return told.replace(tzinfo=zone).timestamp() - stamp


def _zone_of(pid: int) -> tzinfo | None:
    """As its C library finds it: TZ, else /etc/localtime, in its own file system."""
    root = Path(f"/proc/{pid}/root")
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        told = [one[3:].decode() for one in variables if one.startswith(b"TZ=")]
        name = told[0].lstrip(":") if told else "/etc/localtime"
        if name.startswith("/"):
            file = root / name[1:]
        else:
            file = root / "usr/share/zoneinfo" / (name or "UTC")
        if not told and not file.exists():
            return ZoneInfo("UTC")
        with open(file, "rb") as data:
            return ZoneInfo.from_file(data)
    except (OSError, ValueError, KeyError):  # not ours to look at, or a zone by rule
        return None
