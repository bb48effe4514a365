"""A server that we start ourselves: its log, its signals, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from patchkit.errors import UsageError

#: Seconds that it has to end by itself once it was asked to.
GRACE = 10.0


class Child:
    """``command``, its output appended to ``log``, in a session of its own: the keys
    of our terminal reach us, and we hand signals on. Raises UsageError."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.command = tuple(command)
        was_there = log.exists()
        if was_there and not log.is_file():
            raise UsageError(
                f"--log {log} is no file, and a log that is read while it is written"
                " must be one",
                hint="give a file, or leave --log out",
            )
        try:
            with open(log, "ab") as output:
                #: where in the file its output begins
                self.log_began = output.tell()
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as problem:
            if not was_there:
                log.unlink(missing_ok=True)
            where = log if problem.filename == str(log) else command[0]
            raise UsageError(
                f"{where}: {problem.strerror}",
                hint="patchkit watch [OPTIONS] -- COMMAND ARGUMENTS",
            ) from None
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        """``None`` while it runs; negative for a signal."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def end(
        self, others: Iterable[Any], patient: Callable[[], bool] = lambda: True
    ) -> None:
        """Ask it to end, then end it and ``others``, the processes it started: a rank
        that hangs, or is stopped, ends only by SIGKILL. ``patient``: whether it is
        still given time."""
        others = list(others)
        if patient() and self.exit_code is None:
            self.signal(signal.SIGTERM)
            deadline = time.monotonic() + GRACE
            while patient() and self.exit_code is None and time.monotonic() < deadline:
                time.sleep(0.05)
        kill_all(others)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        # one that gives back a lot of memory takes its time
        deadline = time.monotonic() + GRACE
        while any(map(_runs, others)) and time.monotonic() < deadline:
            time.sleep(0.05)


def _runs(process: Any) -> bool:
    with contextlib.suppress(Exception):  # of psutil: it is gone
        return bool(process.is_running() and process.status() != "zombie")
    return False


def kill_all(processes: Iterable[Any]) -> None:
    """SIGKILL to those psutil processes that are still the same and still there."""
    for one in processes:
        with contextlib.suppress(Exception):
            if one.is_running():
                one.kill()
