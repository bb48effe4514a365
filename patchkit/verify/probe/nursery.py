"""Forks workers, watches over them, and hands their reports on."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchkit.verify.jobs import Job, Result
from patchkit.verify.probe import worker
from patchkit.verify.probe.orphans import die_with_parent

if TYPE_CHECKING:
    from patchkit.verify.probe.zygote import Zygote

#: How long a hung worker may take to write its stacks.
GRACE = 1.0
#: How long a rank may go on when another has ended badly: it may wait for that one.
PEER = 20.0
TAIL = 40


@dataclass
class Child:
    job: Job
    rank: int
    pid: int
    folder: Path
    began: float
    due: float
    asked: float | None = None


class Nursery:
    """At most ``slots`` workers at once; both ranks of a job start together. What they
    leave, logs and records of taps, goes into the folder ``keep``, if there is one."""

    def __init__(
        self, folder: Path, slots: int, timeout: float, keep: str, zygote: Zygote
    ) -> None:
        self.folder = folder
        self.keep = keep
        self.slots = slots
        self.timeout = timeout
        self.zygote = zygote
        self.waiting: list[Job] = []
        self.children: dict[int, Child] = {}
        self.count = 0

    def serve(self, inlet: int, parse: Callable[[Any], Job]) -> None:
        """Until ``inlet`` ends. Who waits for results keeps it open."""
        open_, buffer = True, b""
        while open_ or self.waiting or self.children:
            self._start()
            watched = [*self.children, *([inlet] if open_ else [])]
            ready, _, _ = select.select(watched, [], [], self._patience())
            for one in ready:
                if one != inlet:
                    self._ended(one)
                    continue
                data = os.read(inlet, 1 << 20)
                open_ = bool(data)
                if not open_:
                    self._abandon()
                *lines, buffer = (buffer + data).split(b"\n")
                self.waiting += [parse(json.loads(line)) for line in lines if line]
            self._end_hung()

    def _abandon(self) -> None:
        """Nobody waits for what is left."""
        self.waiting.clear()
        for child in self.children.values():
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)

    def _start(self) -> None:
        while self.waiting:
            job = self.waiting[0]
            if self.children and len(self.children) + job.ranks > self.slots:
                return
            self.waiting.pop(0)
            self.count += 1
            folder = self.folder / f"job{self.count}"
            folder.mkdir()
            for rank in range(job.ranks):
                self._fork(job, rank, folder)

    def _fork(self, job: Job, rank: int, folder: Path) -> None:
        life, held = os.pipe()  # ends when the worker and all it started are gone
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with_parent(own)
            os.setpgid(0, 0)
            os.close(life)
            os.close(self.zygote.out)
            for other in self.children:
                os.close(other)
            gc.disable()
            worker.forked(job, rank, folder, self.zygote.imports, held)
        os.close(held)
        with contextlib.suppress(OSError):  # the child may have done it
            os.setpgid(pid, pid)
        now = time.monotonic()
        due = now + self.timeout
        self.children[life] = Child(job, rank, pid, folder, now, due)

    def _patience(self) -> float | None:
        """Seconds until a worker is overdue."""
        now = time.monotonic()
        ends = [
            child.due if child.asked is None else child.asked + GRACE
            for child in self.children.values()
        ]
        return max(0.0, min(ends) - now) if ends else None

    def _end_hung(self) -> None:
        now = time.monotonic()
        for child in self.children.values():
            if child.asked is None and now >= child.due:
                child.asked = now
                with contextlib.suppress(OSError):  # an engine's ranks, too
                    os.killpg(child.pid, worker.STACKS)
            elif child.asked is not None and now - child.asked >= GRACE:
                with contextlib.suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)

    def _ended(self, life: int) -> None:
        child = self.children.pop(life)
        os.close(life)
        _, status = os.waitpid(child.pid, 0)
        result = self._result(child, os.waitstatus_to_exitcode(status))
        self.zygote.say("result", result=result)
        if result["status"] != "ran":
            for peer in self.children.values():
                if peer.folder == child.folder:
                    peer.due = min(peer.due, time.monotonic() + PEER)
        if all(one.folder != child.folder for one in self.children.values()):
            if self.keep:
                shutil.move(child.folder, Path(self.keep, child.job.name))
            else:
                shutil.rmtree(child.folder, ignore_errors=True)

    def _result(self, child: Child, code: int) -> dict[str, Any]:
        report = child.folder / f"{child.rank}.json"
        output = _tail(child.folder / f"{child.rank}.log")
        if report.exists():
            value: dict[str, Any] = json.loads(report.read_bytes())
            if value["status"] != "ran" or value["facts"].get("calls") is None:
                value["output"] = output
            return value
        seconds = round(time.monotonic() - child.began, 3)
        stacks = _tail(child.folder / f"{child.rank}.stacks", 200)
        if child.asked is not None:
            status, error = "hung", f"no end after {child.due - child.began:.0f} s"
        elif code < 0:
            status, error = "died", f"killed by {signal.Signals(-code).name}"
        else:
            status, error = "died", f"exit status {code} without a report"
        result = Result(
            child.job.name,
            child.rank,
            status,
            step=" ".join(_tail(child.folder / f"{child.rank}.step")),
            error=error,
            trace=tuple(stacks),
            output=tuple(output),
            seconds=seconds,
        )
        return result.to_json()


def _tail(file: Path, lines: int = TAIL) -> list[str]:
    try:
        return file.read_bytes().decode("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return []
