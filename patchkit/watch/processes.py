"""The server's processes, by /proc: which are ranks, and what they use.

SGLang names each rank's process ``sglang::scheduler_DP0_TP1`` (``setproctitle``, all
releases from 0.4.6 to 0.5.23); what follows is the rank's label in the log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchkit.watch.extras import need
from patchkit.watch.stall import ProcessSample
from patchkit.watch.threads import Work

RANK = "sglang::scheduler"

#: What psutil raises, besides its own errors, for a process that is going while it is
#: looked at: files in /proc are empty then ("/proc/7/io file was empty").
_GOING = (OSError, RuntimeError, ValueError, IndexError)
#: Seconds between looks for new processes; and how many times longer than one takes.
SCAN, SHARE = 1.0, 20.0


class Tree:
    """The processes from ``pid`` down. Those that its end left behind stay in it."""

    def __init__(self, pid: int) -> None:
        self.psutil = need("psutil", "look at the server's processes")
        self.root = self.psutil.Process(pid)
        self.started: float = self.root.create_time()
        self._known: dict[int, Any] = {pid: self.root}
        self._ranks: dict[int, str] = {}
        #: rank -> the processes below it: compilers, say
        self._helpers: dict[int, list[int]] = {}
        self._work: dict[int, Work] = {}
        self._next_scan = 0.0
        self.denied = False

    @property
    def alive(self) -> bool:
        return self._is_alive(self.root)

    def processes(self) -> list[Any]:
        """Every process of it that is there, ended but not yet collected ones too."""
        now = time.monotonic()
        if now >= self._next_scan:
            self._scan()
            # going through all processes of a large machine takes its time
            self._next_scan = now + max(SCAN, SHARE * (time.monotonic() - now))
        self._known = {pid: one for pid, one in self._known.items() if one.is_running()}
        return list(self._known.values())

    def _scan(self) -> None:
        """Find what those known have started; and what ranks have, their helpers."""
        below: dict[int, list[int]] = {}
        for pid, parent in _parents():
            below.setdefault(parent, []).append(pid)
        for pid in _descendants(below, list(self._known)):
            if pid not in self._known:
                try:
                    self._known[pid] = self.psutil.Process(pid)
                except self.psutil.Error:
                    continue
        for pid in self._known:
            self._rank_of(self._known[pid])
        self._helpers = {
            pid: [one for one in _descendants(below, [pid]) if one not in self._ranks]
            for pid in self._ranks
        }

    def sample(self) -> tuple[tuple[ProcessSample, ...], tuple[ProcessSample, ...]]:
        """The ranks, and the others."""
        ranks: list[ProcessSample] = []
        others: list[ProcessSample] = []
        processes = self.processes()
        # what a rank has started counts as the rank's
        helpers = {pid for some in self._helpers.values() for pid in some}
        for process in processes:
            rank = self._rank_of(process)
            if rank is None and process.pid in helpers:
                continue
            found = self._look(process, rank or "")
            if found is not None:
                (others if rank is None else ranks).append(found)
        return tuple(sorted(ranks, key=lambda one: one.pid)), tuple(others)

    def exit_code(self) -> int | None:
        """Of the root, if it has ended and nobody has collected it yet."""
        return exit_status(self.root.pid)

    def _is_alive(self, process: Any) -> bool:
        try:
            return bool(
                process.is_running() and process.status() != self.psutil.STATUS_ZOMBIE
            )
        except self.psutil.Error:
            return False

    def _rank_of(self, process: Any) -> str | None:
        """Its label; ``None`` if it is no rank. A name once learned is kept: a process
        that has ended has none."""
        known = self._ranks.get(process.pid)
        if known is not None:
            return known
        try:
            command = process.cmdline()
            title = command[0] if command else ""
            if not title.startswith(RANK):
                return None
            # a rank that starts a helper forks: that has its title for a moment
            if any(one.pid in self._ranks for one in process.parents()):
                return None
        except (self.psutil.Error, *_GOING):
            return None
        label = title[len(RANK) :].strip().replace("_", " ").strip()
        # prefixes with a name of two words, as in ATTN_CP0
        label = label.replace("ATTN CP", "ATTN_CP").replace("MOE DP", "MOE_DP")
        self._ranks[process.pid] = label
        return label

    def _look(self, process: Any, rank: str) -> ProcessSample | None:
        pid = process.pid
        try:
            with process.oneshot():
                times = process.cpu_times()
                memory = process.memory_info().rss
                status = process.status()
        except self.psutil.AccessDenied:
            self.denied = True
            return None
        except (self.psutil.Error, *_GOING):
            return None
        if status == self.psutil.STATUS_ZOMBIE:
            return ProcessSample(rank, pid, 0.0, 0, 0, "Z", 0.0, exit_status(pid))
        helpers = times.children_user + times.children_system
        for child in self._helpers.get(pid, ()):
            if child in self._known:
                try:
                    used = self._known[child].cpu_times()
                except (self.psutil.Error, *_GOING):
                    continue
                helpers += used.user + used.system
        work = self._work.setdefault(pid, Work())
        work.look(pid)
        return ProcessSample(
            rank,
            pid,
            work.seconds + helpers,
            memory,
            self._read(process),
            _state(status, work.starved, self.psutil),
            helpers,
            total=times.user + times.system + helpers,
        )

    def _read(self, process: Any) -> int:
        try:
            told = process.io_counters()
        except (self.psutil.AccessDenied, PermissionError):
            self.denied = True
            return 0
        except (self.psutil.Error, *_GOING):
            return 0
        # by system calls (with what the page cache had), or through memory maps
        return int(max(told.read_chars, told.read_bytes))


def _parents() -> Iterator[tuple[int, int]]:
    """Every process and its parent."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"{entry.path}/stat", "rb") as file:
                    told = file.read(1024).rpartition(b") ")[2].split()
                yield int(entry.name), int(told[1])
            except (OSError, IndexError):
                continue


def _descendants(below: dict[int, list[int]], tops: list[int]) -> list[int]:
    """What ``tops`` started, and what that did, without ``tops``."""
    found, left = [], list(tops)
    while left:
        for pid in below.get(left.pop(), ()):
            found.append(pid)
            left.append(pid)
    return found


def _state(status: str, starved: bool, psutil: Any) -> str:
    """One letter, as in /proc; "R" if a thread that works waits for a CPU."""
    if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
        return "T"
    if starved:
        return "R"
    return "D" if status == psutil.STATUS_DISK_SLEEP else "S"


def exit_status(pid: int) -> int | None:
    """The exit code of a process that nobody has collected; negative for a signal."""
    try:
        told = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        if told[0] not in (b"Z", b"X"):
            return None
        return os.waitstatus_to_exitcode(int(told[49]))
    except (OSError, ValueError, IndexError):
        return None
