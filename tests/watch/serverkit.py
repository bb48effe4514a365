"""A real SGLang server on this CPU, with the tiny pair, for tests; and faults in it.

Needs PATCHKIT_SERVER_PYTHON: an interpreter with the extras ``verify`` and ``server``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from support import CACHE, release_tree

HERE = Path(__file__).resolve().parent / "server"
PYTHON = os.environ.get("PATCHKIT_SERVER_PYTHON", "")


def pair(shards: int = 4) -> Path:
    """The folder of target/ and draft/, made once."""
    folder = CACHE / f"watch-pair-v2-{shards}"
    if not folder.exists():
        aside = folder.with_name(f".{folder.name}-{os.getpid()}")
        make = [PYTHON, str(HERE / "pair.py"), str(aside), str(shards)]
        subprocess.run(make, check=True)
        with contextlib.suppress(OSError):
            os.replace(aside, folder)
    return folder


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Server:
    """What to start. ``plant``: module -> texts to replace in it, as (old, new)."""

    release: str
    ranks: int = 1
    model: Path | None = None
    port: int = 0
    tree: Path | None = None
    plant: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    extra: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port = self.port or free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        both = pair()
        options = {
            "--model-path": self.model or both / "target",
            "--speculative-draft-model-path": both / "draft",
            "--speculative-algorithm": "EAGLE3",
            "--speculative-num-steps": 3,
            "--speculative-eagle-topk": 1,
            "--speculative-num-draft-tokens": 4,
            "--device": "cpu",
            "--attention-backend": "torch_native",
            "--sampling-backend": "pytorch",
            "--grammar-backend": "none",
            "--dtype": "float32",
            "--max-total-tokens": 4096,
            "--max-running-requests": 4,
            "--mem-fraction-static": 0.5,
            "--tp-size": self.ranks,
            "--host": "127.0.0.1",
            "--port": self.port,
        }
        given = [str(one) for pair in options.items() for one in pair]
        return [
            *(PYTHON, "-W", "ignore", "-m", "sglang.launch_server"),
            *(*given, "--disable-cuda-graph", *self.extra),
        ]

    def environment(self) -> dict[str, str]:
        tree = self.tree or release_tree(self.release)
        return (
            os.environ
            | {
                "PYTHONPATH": f"{HERE / 'onpath'}:{tree}",
                "PYTHONDONTWRITEBYTECODE": "",
                "PYTHONPYCACHEPREFIX": str(CACHE / "server-bytecode"),
                "SGLANG_USE_CPU_ENGINE": "1",
                "SGLANG_CPU_OMP_THREADS_BIND": "|".join("0" * self.ranks),
                "TORCHDYNAMO_DISABLE": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "HF_HUB_OFFLINE": "1",
                "TRANSFORMERS_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
                "PLANT": json.dumps(self.plant),
            }
            | self.variables
        )


class Watching:
    """``patchkit watch --json`` in a process of its own; its events come as they are
    printed, each with the time at which it came."""

    def __init__(self, *arguments: str, env: dict[str, str], stdin: Any = None) -> None:
        command = [sys.executable, "-m", "patchkit", "watch", "--json", *arguments]
        self._talk = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._talk,
            text=True,
            env=env | {"PYTHONPATH": ""},
        )
        self.events: list[dict[str, Any]] = []
        self.came: list[float] = []

    def until(self, wanted: Any) -> dict[str, Any]:
        """The first event for which ``wanted`` is true. Raises AssertionError."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            self.came.append(time.time())
            if wanted(event):
                return event
        code = self.process.wait(60)
        self._talk.seek(0)
        # the server's log is among it
        said = [
            line
            for line in self._talk.read().decode("utf-8", "replace").splitlines()
            if not line.startswith("[")
        ]
        raise AssertionError(
            f"it never came; exit code {code}, events {self.events[-2:]}, said"
            f" {said[-40:]}"
        )

    def verdict(self) -> dict[str, Any]:
        found = self.until(lambda event: event["event"] == "verdict")
        assert self.process.wait(60) == found["exit_code"]
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def watching(server: Server, *options: str) -> Iterator[Watching]:
    """``patchkit watch -- server``; whatever happens, nothing of it is left."""
    log = CACHE / f"watch-{server.port}.log"
    env = server.environment()
    # ours must not be imported with the server's stand-ins in the way
    command = ["env", f"PYTHONPATH={env['PYTHONPATH']}", *server.command()]
    one = Watching("--log", str(log), *options, "--", *command, env=env)
    try:
        yield one
    finally:
        one.end()
        end_all(server.port)
        keep = os.environ.get("PATCHKIT_KEEP_LOGS")
        if keep and log.exists():
            name = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].split()[0]
            shutil.copy(log, Path(keep) / f"{name}.log")
        log.unlink(missing_ok=True)


@contextlib.contextmanager
def running(server: Server, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The server alone, its output in ``log``."""
    with open(log, "ab") as output:
        process = subprocess.Popen(
            server.command(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=server.environment(),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_all(server.port, process.pid)
        process.wait()


def end_all(port: int, session: int = 0) -> None:
    """SIGKILL to every process of the server on that port: ranks rename themselves,
    so they are known by the session that they share."""
    sessions = {session} if session else set()
    for process in psutil.process_iter(["pid", "cmdline"]):
        if str(port) in (process.info["cmdline"] or ()):
            with contextlib.suppress(ProcessLookupError):
                sessions.add(os.getsid(process.pid))
    sessions.discard(os.getsid(0))
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            if os.getsid(process.pid) in sessions:
                os.kill(process.pid, signal.SIGKILL)


def left_of(session: int) -> list[str]:
    """Processes of a session that still run."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            mine = os.getsid(process.pid) == session
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.name())
    return found
