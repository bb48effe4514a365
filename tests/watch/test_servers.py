"""A real SGLang server on this CPU, ready and with every kind of fault.

`make watch-servers` runs all; by default they are left out. Times are asserted as
bounds on detection only: these are what the command promises.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from typing import Any

import psutil
import pytest

serverkit = pytest.importorskip("serverkit")
from serverkit import (  # noqa: E402
    PYTHON,
    Server,
    Watching,
    end_all,
    left_of,
    pair,
    running,
    watching,
)
from support import release_tree, run_patchkit  # noqa: E402

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not PYTHON, reason="no PATCHKIT_SERVER_PYTHON"),
]
releases = pytest.mark.parametrize("release", ["0.5.9", "0.5.23"])

RUNNER = "sglang.srt.model_executor.model_runner"
WEIGHTS = "sglang.srt.model_loader.weight_utils"
SCHEDULER = "sglang.srt.managers.scheduler"
LOADING = "    def load_model(self):\n"
#: What each loader hands on.
LOADED = {"0.5.9": "f.get_tensor(name)", "0.5.23": "state_dict[name]"}


def crawl(release: str, seconds: float) -> dict[str, Any]:
    """Every megabyte of a large tensor takes so long."""
    old = f"yield name, {LOADED[release]}"
    new = f"yield name, __import__('planting').crawl({LOADED[release]})"
    return {
        "plant": {WEIGHTS: [(old, new)]},
        "variables": {"CRAWL": str(seconds)},
    }


def is_begin(stage: str, rank: str | None = None):
    def wanted(event):
        mine = rank is None or event.get("rank") == rank
        return event["event"] == "begin" and event["stage"] == stage and mine

    return wanted


def ranks_of(pid: int) -> dict[str, psutil.Process]:
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        title = (process.cmdline() or [""])[0]
        if title.startswith("sglang::scheduler"):
            found[title.removeprefix("sglang::scheduler").strip("_")] = process
    return found


def started_pid(one: Watching) -> int:
    event = one.until(lambda event: event.get("says", "").startswith("started process"))
    return int(event["says"].split()[2].rstrip(","))


@releases
def test_ready(release):
    with watching(Server(release), "--until", "ready", "--timeout", "5m") as one:
        pid = started_pid(one)
        verdict = one.verdict()
        assert verdict["verdict"] == "READY", verdict
        assert "a request took" in verdict["says"]
        order = list(verdict["seconds"])
        assert order[0] == "start" and order[-1] == "warm-up"
        assert order.index("weights target") < order.index("weights draft")
        # it got to where it should, so it is left running
        assert psutil.pid_exists(pid) and ranks_of(pid)


@releases
def test_a_killed_rank(release):
    server = Server(release, ranks=2, **crawl(release, 0.6))
    with watching(server, "--timeout", "5m", "--stall", "60") as one:
        pid = started_pid(one)
        one.until(is_begin("weights", "TP1"))
        ranks_of(pid)["TP1"].kill()
        killed = time.time()
        decided = one.until(lambda event: event["event"] == "decided")
        assert decided["time"] - killed < 4, "it has 2 s from when it sees that"
        verdict = one.verdict()
        assert verdict["verdict"] == "CRASHED", verdict
        assert verdict["rank"] == "TP1"
        assert verdict["cause"] in ("killed", "gone")
        assert not left_of(pid), "a server that we started and that failed is ended"


@releases
def test_a_stopped_rank(release):
    server = Server(release, ranks=2, **crawl(release, 0.6))
    with watching(server, "--timeout", "5m", "--stall", "10") as one:
        pid = started_pid(one)
        one.until(is_begin("weights", "TP1"))
        ranks_of(pid)["TP1"].send_signal(signal.SIGSTOP)
        verdict = one.verdict()
        assert verdict["verdict"] == "HUNG", verdict
        assert (verdict["rank"], verdict["cause"]) == ("TP1", "stopped")
        assert "kill -CONT" in verdict["next"]
        assert not left_of(pid)


DEADLOCK = (
    LOADING,
    LOADING + "        if __import__('torch').distributed.get_rank() == 1:\n"
    "            wait = __import__('threading').Lock()\n"
    "            wait.acquire()\n            wait.acquire()\n",
)


@releases
def test_a_deadlock_in_one_rank(release):
    server = Server(release, ranks=2, plant={RUNNER: [DEADLOCK]})
    with watching(server, "--timeout", "5m", "--stall", "10") as one:
        verdict = one.verdict()
        assert verdict["verdict"] == "HUNG", verdict
        assert verdict["rank"] == "TP1"
        odd = [group for group in verdict["stacks"] if group["odd"]]
        assert [group["ranks"] for group in odd] == [["TP1"]]
        assert "load_model (" in odd[0]["frames"][0]
        told = re.search(r"by any of 2 ranks for (\d+) s", verdict["says"])
        assert told and 10 <= int(told[1]) <= 15, verdict["says"]


@releases
def test_a_deadlock_where_ptrace_is_not_permitted(release, tmp_path):
    """The ranks of a tree patched with stack-dump write their stacks themselves."""
    tree = tmp_path / "tree"
    shutil.copytree(release_tree(release), tree)
    applied = run_patchkit("apply", "stack-dump", "--target", tree)
    assert applied.returncode == 0, applied.stderr
    denied = tmp_path / "py-spy"
    denied.write_text("#!/bin/sh\necho 'Error: Permission Denied' >&2\nexit 1\n")
    denied.chmod(0o755)
    server = Server(
        release,
        ranks=2,
        tree=tree,
        plant={RUNNER: [DEADLOCK]},
        variables={"PATCHKIT_STACK_DUMP": "1", "PATCHKIT_PYSPY": str(denied)},
    )
    with watching(server, "--timeout", "5m", "--stall", "10") as one:
        verdict = one.verdict()
        assert verdict["verdict"] == "HUNG", verdict
        odd = [group for group in verdict["stacks"] if group["odd"]]
        assert [group["ranks"] for group in odd] == [["TP1"]]
        assert "load_model (" in odd[0]["frames"][0]


@releases
def test_a_load_slowed_to_a_crawl(release):
    """There are no log lines while it loads, and hardly any CPU: slow, not stuck."""
    server = Server(release, **crawl(release, 1.2))
    with watching(server, "--stall", "5", "--timeout", "5m") as one:
        one.until(is_begin("weights"))
        time.sleep(22)
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(60)
        rest = [json.loads(line) for line in one.process.stdout]
        told = [event for event in rest if event["event"] == "status"]
        loading = [event for event in told if event["phase"] == "weights target"]
        shares = [event["percent"] for event in loading if event["percent"]]
        assert shares == sorted(shares) and shares[-1] > shares[0], told
        assert loading[-1]["eta_s"]
        assert rest[-1]["verdict"] == "STOPPED", rest[-1]


@releases
def test_a_timeout_while_it_loads(release):
    with watching(Server(release), "--timeout", "8", "--stall", "60") as one:
        verdict = one.verdict()
        assert (verdict["verdict"], verdict["exit_code"]) == ("LOADING", 5)


@releases
def test_a_checkpoint_of_other_shapes(release, tmp_path):
    model = tmp_path / "target"
    shutil.copytree(pair() / "target", model)
    config = json.loads((model / "config.json").read_text())
    config |= {"hidden_size": 128}
    (model / "config.json").write_text(json.dumps(config))
    with watching(Server(release, model=model), "--timeout", "5m") as one:
        verdict = one.verdict()
        assert verdict["verdict"] == "CRASHED", verdict
        assert verdict["cause"] == "weights-do-not-fit"
        assert "weights target" in verdict["says"]


@releases
def test_no_checkpoint(release, tmp_path):
    with watching(Server(release, model=tmp_path / "none"), "--timeout", "5m") as one:
        verdict = one.verdict()
        assert (verdict["verdict"], verdict["cause"]) == ("CRASHED", "weights-missing")
        assert verdict["child_exit_code"] not in (0, None)


@releases
def test_a_port_in_use(release):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = Server(release, port=taken.getsockname()[1])
        with watching(server, "--timeout", "5m") as one:
            verdict = one.verdict()
            assert (verdict["verdict"], verdict["cause"]) == ("CRASHED", "port-in-use")


FAILING_BATCH = (
    "    def process_batch_result(\n",
    "    def process_batch_result(self, batch, result):\n"
    "        raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n\n"
    "    def _planted(\n",
)


@releases
def test_a_crash_during_warm_up(release):
    server = Server(release, plant={SCHEDULER: [FAILING_BATCH]})
    with watching(server, "--timeout", "5m") as one:
        failed = one.until(lambda event: event["event"] == "failure")
        decided = one.until(lambda event: event["event"] == "decided")
        assert decided["time"] - failed["time"] < 2.5
        verdict = one.verdict()
        assert (verdict["verdict"], verdict["cause"]) == ("CRASHED", "out-of-memory")
        assert "in warm-up" in verdict["says"]
        assert "process_batch_result" in "\n".join(verdict["details"])


@releases
def test_a_hang_after_ready(release, tmp_path):
    server, log = Server(release), tmp_path / "server.log"
    with running(server, log) as process:
        options = ("--log", str(log), "--pid", str(process.pid), "--timeout", "5m")
        first = Watching(*options, env=dict(os.environ))
        assert first.verdict()["verdict"] == "READY"
        ranks_of(process.pid)[""].send_signal(signal.SIGSTOP)
        later = Watching(
            *options, "--url", server.url, "--deadline", "4", env=dict(os.environ)
        )
        verdict = later.verdict()
        assert verdict["verdict"] == "UNHEALTHY", verdict
        assert verdict["cause"] == "stopped"
        assert "/model_info said 200" in verdict["says"]


@releases
def test_a_log_that_is_cut_rotated_and_full_of_garbage(release, tmp_path):
    server, log = Server(release), tmp_path / "server.log"
    log.write_bytes(b"\x00\xff\xfe garbage of before \x80" * 2000 + b"\n")
    with running(server, log):
        one = Watching("--log", str(log), "--timeout", "5m", env=dict(os.environ))
        one.until(is_begin("distributed"))
        with open(log, "ab") as file:
            file.write(os.urandom(300_000))
        os.truncate(log, 0)
        with open(log, "ab") as file:
            file.write(os.urandom(3000) + b"\n")
        one.until(is_begin("weights"))
        log.rename(tmp_path / "server.log.1")
        log.write_text("a new file, which the server does not know\n")
        verdict = one.verdict()
        assert verdict["verdict"] == "READY", verdict
        assert any("the server is process" in e.get("says", "") for e in one.events)


@releases
def test_a_log_on_stdin(release):
    server = Server(release)
    process = subprocess.Popen(
        server.command(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=server.environment(),
        start_new_session=True,
    )
    try:
        one = Watching(
            "--log", "-", "--timeout", "5m", env=dict(os.environ), stdin=process.stdout
        )
        verdict = one.verdict()
        assert verdict["verdict"] == "READY", verdict
        assert "a request took" in verdict["says"]
    finally:
        end_all(server.port, process.pid)
        process.wait()


@releases
def test_status_says_what_a_running_server_does_not_use(release, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(release_tree(release), tree)
    server, log = Server(release, tree=tree), tmp_path / "server.log"
    with running(server, log) as process:
        one = Watching(
            "--log", str(log), "--until", "weights", "--timeout", "5m",
            env=dict(os.environ),
        )  # fmt: skip
        assert one.verdict()["verdict"] == "REACHED"
        assert run_patchkit("apply", "debug-logging", "--target", tree).returncode == 0
        said = run_patchkit("status", "--target", tree, "--pid", str(process.pid))
        assert "was started before" in said.stdout, said.stdout + said.stderr
        assert said.stdout.count("NOT LOADED") >= 3
        asked = ("status", "--check", "--pid", str(process.pid))
        assert run_patchkit(*asked, "--target", tree).returncode == 1
        other = tmp_path / "other"
        shutil.copytree(release_tree(release), other)
        said = run_patchkit("status", "--target", other, "--pid", str(process.pid))
        assert f"it runs {tree / 'sglang'}" in said.stdout, said.stdout
