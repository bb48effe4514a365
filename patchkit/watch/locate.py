"""Finds the server's process, and its log, where nobody said which."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchkit.errors import UsageError
from patchkit.watch.extras import need
from patchkit.watch.processes import Tree

#: Of a server that is not told one.
DEFAULT_PORT = 30000
#: What may stand between a user and a server that writes the same log.
_SHELLS = ("sh", "bash", "dash", "zsh", "fish", "timeout", "nice", "nohup", "tini")


def open_tree(pid: int) -> Tree:
    """Raises UsageError if there is no such process."""
    psutil = need("psutil", "look at the server's processes")
    try:
        return Tree(pid)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        raise UsageError(
            f"--pid {pid}: there is no such process, or you may not look at it",
            hint="give the process id of python -m sglang.launch_server",
        ) from None


def log_of(pid: int) -> Path | None:
    """The regular file that a process writes its output to, if it does."""
    for file in (1, 2):
        try:
            path = Path(os.readlink(f"/proc/{pid}/fd/{file}"))
        except OSError:
            continue
        if path.is_file():
            return path
    return None


def find_server(identity: tuple[int, int] | None, port: int) -> int | None:
    """The server's first process: what writes the log, else what listens on the port
    or was started with it. ``None`` if there is none, or it is another user's."""
    psutil = need("psutil", "find the server's processes")
    mine = {os.getpid()}
    if identity is not None:
        writers = [
            pid for pid in _pids(psutil) if pid not in mine and _writes(pid, identity)
        ]
        found = _topmost(psutil, writers)
        if found is not None:
            return found
    if not port:
        return None
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = process.info["cmdline"] or []
        if process.pid in mine or not any("sglang" in one for one in command):
            continue
        if _has_port(command, port):
            return int(process.pid)
    return _listener(psutil, port)


def _pids(psutil: Any) -> Iterator[int]:
    yield from psutil.pids()


def _writes(pid: int, identity: tuple[int, int]) -> bool:
    for file in (1, 2):
        try:
            found = os.stat(f"/proc/{pid}/fd/{file}")
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == identity:
            return True
    return False


def _topmost(psutil: Any, pids: list[int]) -> int | None:
    """The Python among them that no other of them started; shells do not count."""
    for pid in sorted(pids):
        try:
            process = psutil.Process(pid)
            command = " ".join(process.cmdline())
            python = "python" in command or "sglang" in command
            parent = process.ppid()
            if python and (
                parent not in pids or psutil.Process(parent).name() in _SHELLS
            ):
                return pid
        except psutil.Error:
            continue
    return None


def _has_port(command: list[str], port: int) -> bool:
    for index, one in enumerate(command):
        if one == f"--port={port}":
            return True
        if one == "--port" and command[index + 1 : index + 2] == [str(port)]:
            return True
    named = any(one.startswith("--port") for one in command)
    return port == DEFAULT_PORT and not named and "sglang.launch_server" in command


def _listener(psutil: Any, port: int) -> int | None:
    try:
        for one in psutil.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid:
                return int(one.pid)
    except psutil.Error:
        pass
    return None
