"""What must not end a server, or a watch: a reader that goes, a package that is
missing, a terminal that is closed; and what a signal makes of a watch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest

psutil = pytest.importorskip("psutil")

from commandkit import (  # noqa: E402
    COMMAND,
    end_session,
    is_left,
    run,
    server,
)

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def test_without_its_extra_nothing_is_started(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "psutil.py").write_text("raise ImportError('not here')\n")
    done = run("--", "touch", "started", env={"PYTHONPATH": str(blocked)}, cwd=tmp_path)
    assert done.returncode == 4
    assert "next: pip install 'sglang-patchkit[watch]'" in done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["blocked"]


def test_a_command_that_is_not_there_leaves_no_log(tmp_path):
    assert run("--", "/no/such/program", cwd=tmp_path).returncode == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("as_json", [True, False])
def test_a_reader_that_goes_ends_no_server(tmp_path, as_json):
    """As `patchkit watch ... | head -1`."""
    options = ["--json"] if as_json else []
    log = tmp_path / "log"
    watching = subprocess.Popen(
        [*COMMAND, *options, "--until", "ready", "--log", str(log), "--", *server()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if as_json else subprocess.STDOUT,
        text=True,
    )
    first = watching.stdout.readline()
    watching.stdout.close()
    said = watching.stderr.read() if as_json else ""
    assert watching.wait(60) == 0, said
    pid = int(first.split("started process ")[1].split(",")[0])
    try:
        assert is_left(pid), "it got ready, and is left running"
        assert "fired up and ready" in log.read_text()
        assert "SIGTERM received" not in log.read_text()
        assert "Traceback" not in said and "BrokenPipe" not in said
    finally:
        end_session(pid)


def watched(log, *more):
    one = subprocess.Popen(
        [*COMMAND, "--json", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    while not log.exists() or "Load weight begin" not in log.read_text():
        time.sleep(0.05)
    for line in one.stdout:
        if json.loads(line).get("phase") == "weights":
            return one
    raise AssertionError("it never saw the weights")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_watch_that_is_stopped_says_where_the_server_is(started, number):
    process, log = started("slow")
    watching = watched(log, "--log", str(log))
    watching.send_signal(number)
    found = json.loads(watching.stdout.read().splitlines()[-1])
    assert watching.wait(30) == 1
    assert (found["event"], found["verdict"]) == ("verdict", "STOPPED")
    assert "asked to end, in weights; the server is left" in found["says"]
    assert "weights" in found["seconds"] and process.poll() is None


def test_a_closed_terminal_asks_the_server_to_end(tmp_path):
    log = tmp_path / "log"
    watching = watched(log, "--log", str(log), "--", *server("slow"))
    watching.send_signal(signal.SIGHUP)
    found = json.loads(watching.stdout.read().splitlines()[-1])
    assert (watching.wait(30), found["verdict"]) == (1, "STOPPED")
    assert not is_left(found["child_pid"])


def test_nohup_is_heeded(tmp_path):
    log = tmp_path / "log"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        watching = watched(log, "--log", str(log), "--", *server("slow"))
    finally:
        signal.signal(signal.SIGHUP, before)
    watching.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert watching.poll() is None
    watching.terminate()
    watching.stdout.read()
    assert watching.wait(30) == 1
    assert os.path.exists(log)


@pytest.mark.parametrize("keep", [False, True])
def test_a_second_signal_waits_for_nothing(tmp_path, keep):
    log, options = tmp_path / "log", ["--keep"] if keep else []
    watching = watched(log, *options, "--log", str(log), "--", *server("stubborn"))
    for _ in range(2):
        watching.send_signal(signal.SIGINT)
        time.sleep(0.5)
    found = json.loads(watching.stdout.read().splitlines()[-1])
    try:
        assert (watching.wait(30), found["verdict"]) == (1, "STOPPED")
        assert "in weights; the server is " in found["says"]
        assert bool(is_left(found["child_pid"])) is keep
        assert found["child_was_ended"] is not keep
    finally:
        end_session(found["child_pid"])


@pytest.mark.parametrize("until", ["ready", "weights"])
def test_it_says_that_the_server_runs_on(tmp_path, until):
    done = run("--until", until, "--", *server(), cwd=tmp_path)
    (log,) = tmp_path.iterdir()
    pid = int(re.search(r"started process (\d+)", done.stderr)[1])
    try:
        assert done.returncode == 0
        assert f"  the server runs on, process {pid}: kill {pid} ends it" in done.stderr
        assert f"  its log: {log}" in done.stderr
        assert is_left(pid)
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while is_left(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_left(pid), "the command that it names does end it"
    finally:
        end_session(pid)


def test_it_says_that_the_server_was_ended(tmp_path):
    log = tmp_path / "log"
    done = run("--timeout", "2s", "--log", log, "--", *server("slow"))
    assert done.returncode == 5
    pid = int(re.search(r"started process (\d+)", done.stderr)[1])
    assert f"process {pid}, was ended with all that it started" in done.stderr
    assert not is_left(pid)
