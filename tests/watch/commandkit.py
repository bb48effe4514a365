"""Runs the command on processes that behave like a server's, without SGLang."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

with contextlib.suppress(ImportError):  # the tests are skipped then
    import psutil

FAKE = Path(__file__).resolve().parent / "fakeserver.py"
COMMAND = [sys.executable, "-m", "patchkit", "watch"]


PORTS = []


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        PORTS.append(str(one.getsockname()[1]))
        return int(PORTS[-1])


@pytest.fixture
def nothing_is_left():
    """Also where a test fails: servers outlive a command that was killed."""
    yield
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = process.info["cmdline"] or []
        if str(FAKE) in command and set(PORTS) & set(command):
            end_session(os.getsid(process.pid))


def server(what="fine", port=0):
    return [sys.executable, str(FAKE), str(port or free_port()), what]


def run(*arguments, timeout=60, env=None, **more):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | (env or {}),
        **more,
    )


def verdict(done):
    return json.loads(done.stdout.splitlines()[-1])


def end_session(pid):
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid:
                process.kill()
        except (psutil.Error, ProcessLookupError):
            continue


def is_left(pid):
    found = []
    for process in psutil.process_iter():
        try:
            mine = os.getsid(process.pid) == pid
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


def rank_process(pid, label):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for process in psutil.Process(pid).children(recursive=True):
            try:
                if process.cmdline()[0] == f"sglang::scheduler_{label}":
                    return process
            except (psutil.Error, IndexError):
                continue
        time.sleep(0.05)
    raise AssertionError(f"no rank {label}")


@pytest.fixture
def started(tmp_path):
    """Starts a fake server with its output in a log; ends it and its ranks."""
    pids = []

    def start(what="fine", port=0):
        log = tmp_path / "server.log"
        with open(log, "ab") as output:
            process = subprocess.Popen(
                server(what, port),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        pids.append(process)
        return process, log

    yield start
    for process in pids:
        end_session(process.pid)
        process.wait()
