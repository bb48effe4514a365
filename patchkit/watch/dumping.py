"""Takes the Python stacks of running ranks: by py-spy, else by a signal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from patchkit.watch.extras import EXTRA, find_pyspy
from patchkit.watch.stacks import Dump, read_faulthandler, read_pyspy

#: Seconds that py-spy may take for one process.
PATIENCE = 4.0
#: Seconds in which a signalled process must have written its stacks to the log.
SOON = 1.5

#: What the recipe stack-dump prints once its handler stands (recipes/stack_dump.py).
_OFFERED = re.compile(r"patchkit stack-dump: SIGUSR2, pid (\d+)")

_DENIED = re.compile(r"permission denied|operation not permitted|EPERM|ptrace", re.I)


def offered_by(text: str) -> int | None:
    """The process that says in this line that SIGUSR2 makes it write its stacks."""
    found = _OFFERED.search(text)
    return int(found[1]) if found else None


def take(
    ranks: Mapping[int, str],
    offered: Sequence[int],
    read_log: Callable[[], list[str]] | None,
    stopped: Sequence[int] = (),
) -> list[Dump]:
    """A dump of each process in ``ranks`` (pid -> label); never raises for one that
    can't be had: that says why.

    ``read_log`` reads on in the log and gives the new lines: there a signalled process
    writes. ``offered``: processes that write on SIGUSR2; any other would die of it.
    ``stopped``: those that run nothing now, to which py-spy must not attach.
    """
    program = find_pyspy()

    def one(pid: int) -> Dump:
        return _by_pyspy(program, pid, ranks[pid], pid in stopped)

    with ThreadPoolExecutor(max(1, min(8, len(ranks)))) as pool:
        found = list(pool.map(one, ranks))
    # one after the other: they share a log
    return [
        _by_signal(dump, read_log)
        if not dump.stack
        and dump.pid in offered
        and read_log
        and dump.pid not in stopped
        else dump
        for dump in found
    ]


def _by_pyspy(program: str | None, pid: int, rank: str, stopped: bool) -> Dump:
    if program is None:
        return Dump(rank, pid, why=f"py-spy is not installed ({EXTRA})")
    command = [program, "dump", "--json", "--full-filenames", "--pid", str(pid)]
    if stopped:
        command.insert(2, "--nonblocking")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Dump(rank, pid, why=f"py-spy had no answer in {PATIENCE:.0f} s")
    except OSError as problem:
        return Dump(rank, pid, why=f"py-spy can't be run: {problem.strerror}")
    if done.returncode == 0:
        try:
            return Dump(rank, pid, read_pyspy(done.stdout), how="py-spy")
        except (ValueError, KeyError, TypeError, AttributeError):
            return Dump(rank, pid, why="py-spy said what is not understood")
    said = done.stderr.strip()
    if _DENIED.search(said):
        return Dump(rank, pid, why=_denied())
    last = said.splitlines()[-1] if said else f"exit code {done.returncode}"
    return Dump(rank, pid, why=f"py-spy failed: {last[:200]}")


def files_in_stack(pid: int) -> list[str]:
    """The files that the threads of a process are in; none if that can't be known."""
    program = find_pyspy()
    if program is None:
        return []
    command = [program, "dump", "--json", "--full-filenames", "--pid", str(pid)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        threads = json.loads(done.stdout) if done.returncode == 0 else []
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return [frame["filename"] for one in threads for frame in one["frames"]]


def _denied() -> str:
    """Why ptrace is not permitted, and what would help."""
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        scope = ""
    because = (
        f" (kernel.yama.ptrace_scope is {scope})" if scope not in ("", "0") else ""
    )
    return (
        f"py-spy may not look into it: ptrace is not permitted{because}; run as root or"
        " with CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE), or patchkit apply"
        " stack-dump and start the server with PATCHKIT_STACK_DUMP=1"
    )


def catches_sigusr2(pid: int) -> bool:
    """Whether the process has a handler: without one the signal ends it."""
    try:
        told = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)", told, re.M)
    return bool(found and int(found[1], 16) >> (signal.SIGUSR2 - 1) & 1)


def _by_signal(dump: Dump, read_log: Callable[[], list[str]]) -> Dump:
    if not catches_sigusr2(dump.pid):
        return dump
    read_log()  # what was there before is not its answer
    try:
        os.kill(dump.pid, signal.SIGUSR2)
    except OSError as problem:
        return Dump(dump.rank, dump.pid, why=f"{dump.why}; SIGUSR2: {problem.strerror}")
    came: list[str] = []
    deadline, last = time.monotonic() + SOON, time.monotonic()
    while time.monotonic() < deadline and (not came or time.monotonic() - last < 0.2):
        more = read_log()
        if more:
            came += more
            last = time.monotonic()
        time.sleep(0.02)
    stack = read_faulthandler(came)
    if not stack:
        return Dump(dump.rank, dump.pid, why=f"{dump.why}; SIGUSR2 brought nothing")
    return Dump(dump.rank, dump.pid, stack, how="SIGUSR2")
