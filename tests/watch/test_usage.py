"""What is given wrongly: a sentence, a next step, exit code 2, and nothing started."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys

import pytest
from commandkit import run
from watchkit import stamp

from patchkit.errors import UsageError
from patchkit.watch.address import check_url, port_of

pytest.importorskip("psutil")

READY = f"{stamp(0)}Load weight begin.\n{stamp(9)}The server is fired up and ready\n"


@pytest.mark.parametrize(
    ("url", "says", "step"),
    [
        ("localhost:8000", "does not begin with http://", "--url http://localhost:8000"),
        ("example", "does not begin with http://", "--url http://example"),
        ("http:/x", "does not begin with http://", "http://127.0.0.1:30000"),
        ("http://", "does not begin with http://", "http://127.0.0.1:30000"),
        ("ftp://x", "does not begin with http://", "http://127.0.0.1:30000"),
        ("http://x:abc", "its port is no number", "http://127.0.0.1:30000"),
        ("http://x:99999", "its port is no number", "http://127.0.0.1:30000"),
        ("http://x:", "no port after the colon", "http://127.0.0.1:30000"),
        ("http://x:0", "no port after the colon", "http://127.0.0.1:30000"),
        ("http://a b", "no blanks", "http://127.0.0.1:30000"),
        ("http://[::1", "it is no URL", "http://127.0.0.1:30000"),
        ("http://:80", "no host", "http://127.0.0.1:30000"),
        ("http://me:secret@x", "a user's name", "--api-key"),
        ("http://x?a=1", "a ? or a #", "http://127.0.0.1:30000"),
        ("http://x:1/v1", "plus /v1", "--url http://x:1"),
    ],
)  # fmt: skip
def test_urls_that_are_none(url, says, step):
    with pytest.raises(UsageError) as refused:
        check_url(url)
    assert says in refused.value.message and step in refused.value.hint


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://127.0.0.1:8000", 8000),
        ("http://my_host-1.local/", 80),
        ("https://x/behind/a/proxy", 443),
        ("http://[::1]:9", 9),
    ],
)
def test_urls(url, port):
    check_url(url)
    assert port_of(url) == port


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--url", "http://x:abc"], "its port is no number"),
        (["--log", "x", "--stall", "0"], "'0' is no time to wait"),
        (["--log", "x", "--timeout", "0s"], "'0s' is no time to wait"),
        (["--log", "x", "--api-key", "a\nb"], "no HTTP header may hold"),
        (["--replay", "ready.log", "--", "touch", "started"], "so a command makes no"),
        (["--replay", "ready.log", "--log", "y"], "so --log makes no sense"),
        (["--replay", "ready.log", "--url", "http://x"], "so --url makes no sense"),
        (["--log", "/dev/null"], "is a device, and no log"),
        (["--replay", "poem.txt"], "no line of it is of an SGLang server"),
        (["--replay", "empty"], "is empty"),
        (["--replay", "cut.gz"], "can't be read"),
    ],
)
def test_a_sentence_and_a_next_step(arguments, says, tmp_path):
    (tmp_path / "ready.log").write_text(READY)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(READY.encode())[:40])
    (tmp_path / "poem.txt").write_text("Tell me not, in mournful numbers,\n")
    (tmp_path / "empty").touch()
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr and "next: " in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "started").exists()


def test_a_key_with_a_line_end_is_no_fault(tmp_path):
    done = run("--url", "http://127.0.0.1:1", "--timeout", "1s",
               env={"PATCHKIT_API_KEY": "secret\n"})  # fmt: skip
    assert done.returncode == 5 and "secret" not in done.stdout + done.stderr


def test_replay_of_what_logrotate_leaves(tmp_path):
    log = tmp_path / "server.log.1.gz"
    log.write_bytes(gzip.compress(READY.encode()))
    assert run("--replay", log).stdout.startswith("READY the server is ready after 9.0")


def test_replay_as_events(tmp_path):
    (tmp_path / "log").write_text(READY)
    done = run("--json", "--replay", tmp_path / "log")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["event"] for one in events] == ["begin", "ready", "verdict"]
    assert events[1]["time"] - events[0]["time"] == 9, "the time of the line, not ours"


def test_the_exit_codes_are_in_the_help():
    said = " ".join(run("--help").stdout.split())
    for code in ("0 READY", "1 CRASHED", "2 usage", "4 can't", "5 the timeout", "130"):
        assert code in said


@pytest.mark.parametrize("log", ["-", "pipe", "none.log", "empty"])
def test_a_log_without_a_line(log, tmp_path):
    (tmp_path / "empty").touch()
    if log == "pipe":
        os.mkfifo(tmp_path / "pipe")
    done = run("--log", log, "--timeout", "1s", cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == 5
    assert done.stdout.startswith("LOADING the log ")
    assert "no line" in done.stdout and "next: is it the log that" in done.stdout
    assert "-1" not in done.stdout
    assert ("there is no none.log yet" in done.stderr) is (log == "none.log")


def test_a_device_is_no_log_to_replay(tmp_path):
    done = run("--replay", "/dev/zero", cwd=tmp_path)
    assert done.returncode == 2 and "is a device" in done.stderr


def test_what_else_writes_to_a_device_is_no_server(tmp_path):
    """stdin is /dev/null, to which this process writes."""
    code = "import time; time.sleep(60)"
    null = subprocess.DEVNULL
    other = subprocess.Popen([sys.executable, "-c", code], stdout=null, stderr=null)
    try:
        done = run("--log", "-", "--timeout", "1s", cwd=tmp_path, stdin=null)
        assert "the server is process" not in done.stderr
        assert "no line" in done.stdout
    finally:
        other.kill()
        other.wait()


def test_a_log_that_comes_by_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"printf '%s' '{READY}' > {pipe}"]):
        done = run("--log", pipe, "--timeout", "20s")
    assert done.stdout.startswith("READY "), done.stdout + done.stderr
