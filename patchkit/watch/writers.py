"""Does any process write a log, by the open files in /proc; and can it?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

#: Bytes that the last lines of a log need: what a buffer of python's holds.
ROOM = 8192
#: File systems that other machines write to, too.
_SHARED = ("nfs", "cifs", "smb", "fuse", "9p", "virtiofs", "lustre", "ceph", "gpfs")


#: The number of the PID namespace of a machine itself (linux/proc_ns.h).
_MACHINE = 0xEFFFFFFC


def is_written(path: Path) -> bool | None:
    """Whether a process has it open to write; ``None`` if that can't be known: of
    another user's log, where not all may be looked at, or where others out of sight
    may write."""
    try:
        log = os.stat(path)
    except OSError:
        return None
    denied = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for file in _open_to_write(pid, log):
                if file and int(pid) != os.getpid():
                    return True
        except PermissionError:
            denied = True
        except OSError:  # it ended
            continue
    if denied and log.st_uid != os.geteuid():
        return None
    return None if _is_shared(path) else False


def is_full(path: Path) -> bool:
    """Whether there is no room for a line more on its disk."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return False
    return disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < ROOM


def _open_to_write(pid: str, log: os.stat_result) -> Iterator[str]:
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            found = os.stat(entry.path)
            if (found.st_dev, found.st_ino) != (log.st_dev, log.st_ino):
                continue
            told = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text()
        except OSError:  # closed meanwhile
            continue
        flags = int(told.split("flags:")[1].split()[0], 8)
        if flags & os.O_ACCMODE != os.O_RDONLY:
            yield entry.name


def _is_shared(path: Path) -> bool:
    """Whether processes out of our sight may write there: other machines, or, from
    inside a container, those of another one on a volume."""
    place, kind = _mount_of(path)
    return kind.startswith(_SHARED) or (_in_container() and place != "/")


def _in_container() -> bool:
    """Whether there are processes that we don't see."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino != _MACHINE
    except OSError:
        return True


def _mount_of(path: Path) -> tuple[str, str]:
    """Where the file system is mounted that it lies on, and its kind."""
    best, kind = "", ""
    real = Path(os.path.realpath(path))
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            place = fields.split()[4]
            # the last of those on one place hides the others
            if len(place) >= len(best) and real.is_relative_to(place):
                best, kind = place, rest.split()[0]
    return best, kind
