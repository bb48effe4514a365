"""Births and deaths of a process with a ring: no record is lost or said twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]

START = """
import os, sys, signal, time, types
import torch
from sglang.srt import patchkit_tap as tap
from sglang.srt.patchkit_tap import process, speaker
# CPU tensors go through a ring, and the thread is too slow to read it.
process.ON_HOST = frozenset({"meta"})
process._triton = lambda device: None
from sglang.srt.patchkit_tap import reader
reader._BUSY = reader._IDLE = 3600.0

def speak(count, site="x"):
    for _ in range(count):
        tap.begin("m", None)
        tap.tap(site, torch.ones(2, 4))
"""


def start(tmp_path, body, **environment):
    package = tmp_path / "tree" / "sglang" / "srt" / "patchkit_tap"
    if not package.exists():
        package.parent.mkdir(parents=True)
        package.symlink_to(ROOT / "patchkit" / "tap", target_is_directory=True)
    script = tmp_path / "script.py"
    script.write_text(START + textwrap.dedent(body))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("EAGLE3_")}
    return subprocess.Popen(
        [sys.executable, str(script)],
        env={
            **clean,
            "PYTHONPATH": str(tmp_path / "tree"),
            "EAGLE3_DEBUG": "1",
            "EAGLE3_DEBUG_DIR": str(tmp_path / "taps"),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def records(tmp_path):
    found = {}
    for file in sorted((tmp_path / "taps").glob("*.jsonl")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        found[file.name] = [line for line in lines if "event" not in line]
    return found


def steps(tmp_path):
    ((_, rows),) = records(tmp_path).items()
    return [row["step"] for row in rows]


@pytest.mark.parametrize(
    "ending,code",
    [
        ("speak(5)", 0),
        ("speak(5); sys.exit(3)", 3),
        ("speak(5); raise RuntimeError('the model crashed')", 1),
    ],
)
def test_the_end_of_the_interpreter(tmp_path, ending, code):
    process = start(tmp_path, ending)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    assert errors.count("EAGLE3_DEBUG[x] rank=0") == 5


def test_sigterm(tmp_path):
    body = "speak(5); print('ready', flush=True); time.sleep(600)"
    process = start(tmp_path, body)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    # As without the tap: killed by the signal.
    assert process.returncode == -signal.SIGTERM
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


def test_a_handler_of_somebody_else_stays(tmp_path):
    body = """
    def mine(number, frame):
        print("mine", flush=True)
        sys.exit(7)
    signal.signal(signal.SIGTERM, mine)
    speak(5)
    assert signal.getsignal(signal.SIGTERM) is mine
    print("ready", flush=True)
    time.sleep(600)
    """
    process = start(tmp_path, body)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("mine\n", 7)
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


def test_sigterm_in_a_thread_that_is_not_the_main_one(tmp_path):
    """Handlers can be set in the main thread only; nothing breaks elsewhere."""
    body = """
    import threading
    thread = threading.Thread(target=speak, args=(5,))
    thread.start()
    thread.join()
    """
    process = start(tmp_path, body)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("ending", ["sys.exit(0)", "os._exit(0)"])
def test_a_forked_child_has_a_ring_of_its_own(tmp_path, ending):
    body = f"""
    speak(3)
    child = os.fork()
    if child == 0:
        os.environ["RANK"] = "1"
        speak(2, "child")
        speaker.STATE.process.flush()
        {ending}
    _, status = os.waitpid(child, 0)
    assert status == 0
    speak(1)
    """
    process = start(tmp_path, body)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = records(tmp_path)
    sites = {name.split("-")[1]: [r["site"] for r in x] for name, x in found.items()}
    assert sites == {"rank0": ["x"] * 4, "rank1": ["child"] * 2}


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_children_of_multiprocessing_flush(tmp_path, way):
    """As ranks do: each in a process of its own, with a ring and a file of its own."""
    body = f"""
    import multiprocessing

    def child(rank):
        os.environ["RANK"] = str(rank)
        speak(3)

    if __name__ == "__main__":
        context = multiprocessing.get_context("{way}")
        many = [context.Process(target=child, args=(rank,)) for rank in (1, 2)]
        for one in many:
            one.start()
        for one in many:
            one.join()
            assert one.exitcode == 0
    """
    process = start(tmp_path, body)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    found = records(tmp_path)
    assert sorted(name.split("-")[1] for name in found) == ["rank1", "rank2"]
    for name, rows in found.items():
        assert [row["step"] for row in rows] == [1, 2, 3]
        assert {f"rank{row['rank']}" for row in rows} == {name.split("-")[1]}


def test_a_hole_in_the_ring_does_not_hide_what_stands_behind_it(tmp_path):
    """As a kernel leaves it that was killed between number and record."""
    body = """
    speak(2)
    device = next(iter(speaker.STATE.process.devices.values()))
    device._writer._events += 1
    speak(2)
    """
    process = start(tmp_path, body)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert steps(tmp_path) == [1, 2, 3, 4]
    assert "EAGLE3_DEBUG[ring] lost 1 records" in errors
