"""The command, on processes that behave like a server's, without SGLang."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

psutil = pytest.importorskip("psutil")

from commandkit import (  # noqa: E402
    COMMAND,
    end_session,
    free_port,
    is_left,
    rank_process,
    run,
    server,
    verdict,
)

pytestmark = pytest.mark.usefixtures("nothing_is_left")

# -- a server that it starts ----------------------------------------------------------


def test_ready_and_left_running(tmp_path):
    log = tmp_path / "log"
    done = run("--json", "--until", "ready", "--log", log, "--", *server())
    found = verdict(done)
    try:
        assert (done.returncode, found["verdict"]) == (0, "READY"), done.stderr
        assert is_left(found["child_pid"]) and found["child_exit_code"] is None
        events = [json.loads(line) for line in done.stdout.splitlines()]
        begins = [e["rank"] for e in events if e["event"] == "begin"]
        assert sorted(begins) == ["TP0", "TP0", "TP1", "TP1"]
        assert "a request took" in found["says"]
        # the server's log goes to stderr then
        assert "fired up and ready" in done.stderr
        assert "fired up and ready" in log.read_text()
    finally:
        end_session(found["child_pid"])


def test_a_crash_ends_it_with_every_process(tmp_path):
    done = run("--log", tmp_path / "log", "--", *server("crash"))
    assert done.returncode == 1
    assert "CRASHED TP1 failed in weights: KeyError: 'model.layers" in done.stderr
    assert "next: is it the checkpoint of this config.json" in done.stderr
    assert "Load weight begin" in done.stdout and "CRASHED" not in done.stdout
    pid = int(re.search(r"started process (\d+)", done.stderr)[1])
    assert not is_left(pid)


def test_it_goes_on_after_ready_and_hands_signals_on(tmp_path):
    log = tmp_path / "log"
    watching = subprocess.Popen(
        [*COMMAND, "--log", str(log), "--", *server()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid = int(re.search(r"started process (\d+)", watching.stderr.readline())[1])
    while not log.exists() or "fired up" not in log.read_text():
        time.sleep(0.05)
    time.sleep(1)
    assert watching.poll() is None
    watching.send_signal(signal.SIGTERM)
    said = watching.communicate(timeout=30)[1]
    assert watching.returncode == 0, said
    assert "STOPPED the server was asked to end" in said
    assert not is_left(pid)


@pytest.mark.parametrize("keep", [False, True])
def test_a_timeout_ends_it_unless_kept(tmp_path, keep):
    options = ["--keep"] if keep else []
    done = run("--json", "--log", tmp_path / "log", "--timeout", "3", *options, "--",
               *server("slow"))  # fmt: skip
    found = verdict(done)
    try:
        assert (done.returncode, found["verdict"]) == (5, "LOADING")
        assert bool(is_left(found["child_pid"])) is keep
        assert (found["child_exit_code"] is None) is keep
    finally:
        end_session(found["child_pid"])


def test_a_command_that_is_not_there(tmp_path):
    done = run("--log", tmp_path / "log", "--", "/no/such/program")
    assert done.returncode == 2 and "No such file" in done.stderr


# -- a server that runs ---------------------------------------------------------------


def test_the_server_is_found_by_its_log(started):
    process, log = started()
    done = run("--log", log)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("READY the server is ready after")
    assert f"the server is process {process.pid}" in done.stderr


def test_the_log_is_found_by_the_process(started):
    process, log = started()
    done = run("--pid", process.pid, "--until", "weights")
    assert done.returncode == 0, done.stderr
    assert f"its log is {log}" in done.stderr
    assert "REACHED every rank has loaded its weights" in done.stdout


def test_by_url_alone(started):
    port = free_port()
    started("fine", port)
    done = run("--url", f"http://127.0.0.1:{port}", "--json")
    assert (done.returncode, verdict(done)["verdict"]) == (0, "READY"), done.stderr


def test_a_deadlock_names_the_rank(started):
    from patchkit.watch.extras import find_pyspy

    process, log = started("deadlock")
    done = run("--log", log, "--stall", "3", "--json")
    found = verdict(done)
    assert (done.returncode, found["verdict"]) == (1, "HUNG"), done.stderr
    if find_pyspy() is None or "not permitted" in str(found["without_stack"]):
        pytest.skip("py-spy can't look into processes here")
    assert found["rank"] == "TP1"
    assert found["details"][0] == (
        "TP1 differs: it is in wait_for_a_lock, not in all_reduce, in which TP0 waits"
    )
    assert process.poll() is None, "a server that it did not start is left alone"


def test_a_stopped_rank(started):
    process, log = started("wait")
    stopped = rank_process(process.pid, "TP0")
    stopped.suspend()
    done = run("--log", log, "--pid", process.pid, "--stall", "2", "--json")
    found = verdict(done)
    assert (found["verdict"], found["cause"]) == ("HUNG", "stopped"), found
    assert found["next"] == f"kill -CONT {stopped.pid}"


def test_a_killed_rank(started):
    process, log = started("deadlock")
    victim = rank_process(process.pid, "TP1")
    watching = subprocess.Popen(
        [*COMMAND, "--json", "--log", str(log), "--pid", str(process.pid)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    for line in watching.stdout:
        if json.loads(line).get("ranks") == 2:
            break
    victim.kill()
    found = json.loads(watching.stdout.read().splitlines()[-1])
    assert watching.wait(30) == 1
    assert (found["verdict"], found["rank"]) == ("CRASHED", "TP1")
    assert found["cause"] in ("killed", "gone")


def test_unhealthy(started):
    port = free_port()
    _, log = started("deaf", port)
    done = run("--log", log, "--deadline", "2", "--json")
    found = verdict(done)
    assert (done.returncode, found["verdict"]) == (1, "UNHEALTHY"), done.stderr
    assert "/model_info said 200" in found["says"]


def test_a_server_that_goes_deaf_after_it_was_ready(tmp_path):
    """Watched on; asked each second instead of each half minute."""
    script = (
        "import sys; from patchkit.watch import asking; asking.AGAIN = 1.0\n"
        "from patchkit import cli; sys.exit(cli.run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "watch", "--json", "--deadline", "2",
         "--log", str(tmp_path / "log"), "--", *server("deaf later")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    found = verdict(done)
    assert (done.returncode, found["verdict"]) == (1, "UNHEALTHY"), done.stderr
    assert found["seconds"] and not is_left(found["child_pid"])


def test_a_log_on_stdin():
    done = subprocess.run(
        f"{' '.join(server('crash'))} 2>&1 | {' '.join(COMMAND)} --log -",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "CRASHED TP1 failed in weights: KeyError" in done.stdout


def test_a_log_that_comes_later(tmp_path):
    log = tmp_path / "later.log"
    watching = subprocess.Popen(
        [*COMMAND, "--log", str(log), "--no-request"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    time.sleep(1)
    log.write_text("[2026-11-30 23:40:51] The server is fired up and ready to roll!\n")
    assert watching.communicate(timeout=30)[0].startswith("READY")


# -- what it prints -------------------------------------------------------------------


def test_plain_lines_in_a_pipe(started):
    _, log = started()
    done = run("--log", log)
    lines = done.stderr.splitlines()
    assert all(line.startswith("patchkit: ") for line in lines)
    assert "\x1b" not in done.stdout + done.stderr and "\r" not in done.stderr


def test_a_live_line_on_a_terminal(started):
    pytest.importorskip("rich")
    _, log = started("deadlock")
    leader, follower = pty.openpty()
    watching = subprocess.Popen(
        [*COMMAND, "--log", str(log), "--timeout", "4"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
    )
    os.close(follower)
    said = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(leader)
    assert watching.wait(30) == 5
    text = said.decode()
    assert "\x1b[2K" in text, "the line is drawn anew"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    shown = [line for line in re.split(r"[\r\n]+", plain) if "weights" in line]
    assert shown and all(len(line) <= 80 for line in shown), max(shown, key=len)


def test_replay_and_its_picture(started, tmp_path):
    process, log = started("crash")
    process.wait(30)
    picture = tmp_path / "timeline.html"
    done = run("--replay", log, "--picture", picture)
    assert done.returncode == 1
    assert done.stdout.startswith("CRASHED TP1 failed in weights: KeyError")
    html = picture.read_text()
    assert html.count("<svg") == 1 and "CRASHED" in html
    assert {"TP0", "TP1"} <= set(re.findall(r">([^<>]+)</text>", html))
    again = run("--replay", "-", stdin=open(log, "rb"))  # noqa: SIM115
    assert again.stdout == done.stdout


def test_replay_of_a_log_that_is_not_finished(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "[2026-11-30 23:40:51] server_args=ServerArgs(model_path='m')\n"
        "[2026-11-30 23:41:51] Load weight begin. avail mem=7 GB\n"
        "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:10<00:30]\r"
    )
    done = run("--replay", log)
    assert done.returncode == 5
    assert (
        "the log ends in weights, 1 min 00 s after its start, at 25% (1/4 shards)"
        in done.stdout
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "what should be watched?"),
        (["--log", "."], "is a folder"),
        (["--log", "x", "--timeout", "soon"], "is no time; give 90s, 30m or 1h30m"),
        (["--pid", "4194305"], "there is no such process"),
        (["--url", "http://x", "--until", "graphs"], "is read from the log"),
        (["--pid", "1", "--", "true"], "make no sense"),
        (["--replay", "none.log"], "can't be read"),
        (["--log", "x", "--picture", "no/where.html"], "there is no folder"),
    ],
)
def test_bad_usage(arguments, says, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr and "next: " in done.stderr


@pytest.mark.parametrize("text", ["90", "90s", "1m30s", "1m30", "1.5m"])
def test_a_time(text):
    from patchkit.watch.text import durations_of

    if text == "1.5m":
        with pytest.raises(ValueError):
            durations_of(text)
    else:
        assert durations_of(text) == 90


def test_without_its_extra_it_says_what_to_install(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "psutil.py").write_text("raise ImportError('not here')\n")
    done = run("--log", tmp_path / "x", env={"PYTHONPATH": str(blocked)}, cwd=tmp_path)
    assert done.returncode == 4
    assert "needs the package psutil" in done.stderr
    assert "next: pip install 'sglang-patchkit[watch]'" in done.stderr
