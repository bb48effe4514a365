"""Who works, who only looks, and who is starved: by real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from patchkit.watch.threads import Work

LOOKS = """
import threading, time
def look():
    while True:
        time.sleep(0.01)
for _ in range(12):
    threading.Thread(target=look, daemon=True).start()
threading.Event().wait()
"""
WORKS = "while True: pass"


@pytest.fixture
def start():
    processes = []

    def run(script, *, on=None):
        process = subprocess.Popen([sys.executable, "-c", script])
        processes.append(process)
        if on is not None:
            os.sched_setaffinity(process.pid, {on})
        return process.pid

    yield run
    for process in processes:
        process.kill()
        process.wait()


def watch(pid, seconds=3.0):
    """Seconds of work, and in how many looks it was starved, of those taken."""
    work, end = Work(), time.monotonic() + seconds
    looks = starved = 0
    work.look(pid)
    while time.monotonic() < end:
        time.sleep(0.5)
        work.look(pid)
        looks += 1
        starved += work.starved
    return work.seconds, starved, looks


def test_a_dozen_threads_that_look_are_no_work(start):
    pid = start(LOOKS)
    time.sleep(1)  # its imports are work
    seconds, starved, looks = watch(pid)
    assert seconds < 0.02 * 3
    assert starved <= looks / 2


def test_one_that_works_among_others_that_do(start):
    """On one CPU with three more: it gets little, and is seen to want more. Where the
    machine is so slow that a look takes long, there are few looks."""
    cpu = min(os.sched_getaffinity(0))
    for _ in range(3):
        start(WORKS, on=cpu)
    pid, work, starved = start(WORKS, on=cpu), Work(), 0
    end = time.monotonic() + 60
    while time.monotonic() < end and work.seconds <= 0.02 * 3 and starved < 3:
        work.look(pid)
        starved += work.starved
        time.sleep(0.5)
    assert work.seconds > 0.02 * 3 or starved >= 3


def test_a_process_that_is_gone():
    work = Work()
    work.look(2**22 + 1)
    assert (work.seconds, work.starved) == (0.0, False)
