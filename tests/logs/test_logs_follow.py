"""A live server: the log grows, is rotated, is cut; Ctrl-C ends with the summary."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from logkit import draft, forward, round_
from support import ROOT

SKIPPED = forward(step=9) + draft(step=25, norms=(7.0,), fc="skipped")


class Following:
    """``patchkit logs --follow`` in a process of its own."""

    def __init__(self, *arguments: str | Path) -> None:
        command = [sys.executable, "-u", "-m", "patchkit", "logs", "--follow"]
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        self.said: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream,))
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for one in self._readers:
            one.start()

    def _read(self, stream) -> None:
        self.said += iter(stream.readline, "")

    def wait_for(self, text: str) -> None:
        self.until(lambda: text in "".join(self.said))

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(1200):
            if holds():
                return
            assert self.process.poll() is None, self.said
            time.sleep(0.05)
        raise AssertionError(self.said)

    def interrupt(self) -> str:
        """Ctrl-C; what was said."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        for one in self._readers:
            one.join()
        return "".join(self.said)


@pytest.fixture
def follow() -> Iterator[Callable[..., Following]]:
    running = []

    def start(*arguments: str | Path) -> Following:
        running.append(Following(*arguments))
        running[-1].wait_for("following")
        return running[-1]

    yield start
    for one in running:
        one.process.kill()
        one.process.wait()


def append(file: Path, text: str) -> None:
    with open(file, "a") as opened:
        opened.write(text)


def test_findings_come_as_the_log_grows(tmp_path, follow):
    log = tmp_path / "server.log"
    log.write_text("".join(map(round_, range(1, 9))))
    running = follow(log)
    # a line in two parts is one line
    append(log, SKIPPED[:500])
    time.sleep(0.6)
    append(log, SKIPPED[500:])
    running.wait_for("fc was skipped although 3 states were captured")
    said = running.interrupt()
    assert running.process.returncode == 1
    assert "86 records in 86 lines" in said
    # once when it was found, once in the summary
    assert said.count("error: fc was skipped") == 2


def test_rotation_and_truncation(tmp_path, follow):
    log = tmp_path / "server.log"
    log.write_text(round_(1))
    running = follow(log)
    log.rename(tmp_path / "server.log.1")
    append(tmp_path / "server.log.1", round_(2))
    log.write_text("")
    append(log, round_(3).replace("nonfinite=0", "nonfinite=3", 1))
    running.wait_for("NaN or Inf")
    log.write_text(forward(step=4))  # shorter than what was there
    time.sleep(0.6)
    append(log, "EAGLE3_DEBUG[deepseek_v2.aux] tap failed: ValueError: no\n")
    running.wait_for("tap at deepseek_v2.aux failed")
    said = running.interrupt()
    # all of three files, and what is left of the fourth
    assert "ranks 0; deepseek_v2 steps 1-4" in said
    assert "bad line" not in said


def test_a_folder_where_ranks_come_later(tmp_path, follow):
    def record(rank: int, norm: float) -> str:
        values = {
            "site": "deepseek_v2.aux", "rank": rank, "step": 1, "layer": 2,
            "norm": norm, "shape": [4, 64], "nonfinite": 0, "time": 1000.0,
        }  # fmt: skip
        return json.dumps(values) + "\n"

    (tmp_path / "taps-rank0-pid1.jsonl").write_text(record(0, 1.0))
    running = follow(tmp_path, "--json")
    (tmp_path / "taps-rank1-pid2.jsonl").write_text(record(1, 2.0))
    time.sleep(1.0)
    said = running.interrupt()
    value = json.loads(said[said.index("{") :])
    assert value["ranks"] == [0, 1]
    assert value["findings"][0]["name"] == "ranks-disagree"
    assert running.process.returncode == 1


def test_a_pipe_ends_by_itself():
    command = [sys.executable, "-m", "patchkit", "logs", "--follow", "-"]
    done = subprocess.run(
        command, input=round_(1), capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0
    assert "10 records in 10 lines" in done.stdout
