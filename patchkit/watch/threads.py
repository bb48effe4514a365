"""Does a process work? By its threads' scheduling, in /proc/PID/task/*/schedstat.

The sum over all threads does not tell: a rank that waits in a collective has a dozen
threads that look for messages a hundred times a second (gloo's, measured: 0.01 ms each
time), which adds up. No one of them works. And on a loaded machine each of them is
seen waiting for a CPU now and then, as a rank that is starved is all the time.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

#: Seconds that a thread stays on a CPU, on average, if it works and does not just look.
SLICE = 0.0002
#: Seconds between looks, and how many times longer than a look takes.
EVERY, SHARE = 0.5, 20.0


@dataclass
class _Thread:
    run: int
    wait: int
    slices: int
    runnable: bool = False


@dataclass
class Work:
    """``seconds``: of the busiest thread, from look to look, added up; ``starved``:
    whether a thread that works waits for a CPU."""

    seconds: float = 0.0
    starved: bool = False
    _threads: dict[str, _Thread] = field(default_factory=dict)
    _next: float = 0.0

    def look(self, pid: int) -> None:
        """Look again, unless it was a moment ago. Threads that end are forgotten."""
        began = time.monotonic()
        if began < self._next:
            return
        found: dict[str, _Thread] = {}
        most, starved = 0, False
        for task in _tasks(pid):
            told = _schedstat(task)
            if told is None:
                continue
            run, wait, slices = told
            before = self._threads.get(task, _Thread(0, 0, 0))
            used, times = run - before.run, slices - before.slices
            waited = wait - before.wait
            if self._threads:
                most = max(most, used)
            # while it waits its numbers stand still
            runnable = not times and _is_runnable(task)
            starved |= runnable and before.runnable
            starved |= bool(times) and used > SLICE * 1e9 * times and waited > used
            found[task] = _Thread(run, wait, slices, runnable)
        self.seconds += most / 1e9
        self.starved = starved
        self._threads = found
        now = time.monotonic()
        self._next = now + max(EVERY * 0.9, SHARE * (now - began))


def _tasks(pid: int) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _schedstat(task: str) -> tuple[int, int, int] | None:
    """Nanoseconds run and waited, and how often it was put on a CPU."""
    try:
        with open(f"{task}/schedstat", "rb") as file:
            run, wait, slices = file.read(128).split()
        return int(run), int(wait), int(slices)
    except (OSError, ValueError):
        return None


def _is_runnable(task: str) -> bool:
    try:
        with open(f"{task}/stat", "rb") as file:
            return file.read(512).rpartition(b") ")[2][:1] == b"R"
    except OSError:
        return False
