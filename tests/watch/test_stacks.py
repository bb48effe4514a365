"""Stacks, by py-spy and by faulthandler, and which rank differs."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from patchkit.watch import dumping
from patchkit.watch.stacks import (
    Dump,
    Frame,
    Unmoving,
    describe,
    group,
    read_faulthandler,
    read_pyspy,
    say_odd,
    short_file,
)

REDUCE = Frame("all_reduce", "torch/distributed/distributed_c10d.py", 2810)
LOCK = Frame("acquire", "threading.py", 12)
LOAD = Frame("load_model", "sglang/srt/model_executor/model_runner.py", 900)


def dumps(**stacks):
    return [
        Dump(rank, index, stack) for index, (rank, stack) in enumerate(stacks.items())
    ]


def test_equal_stacks_are_drawn_together_and_the_odd_one_is_named():
    found = group(dumps(TP0=(REDUCE, LOAD), TP1=(LOCK, LOAD), TP2=(REDUCE, LOAD)))
    assert [(one.ranks, one.odd) for one in found] == [
        (("TP0", "TP2"), False),
        (("TP1",), True),
    ]
    assert say_odd(found) == (
        "TP1 differs: it is in acquire, not in all_reduce, in which TP0, TP2 wait"
    )
    assert "TP1:  <- differs" in describe(found)


def test_of_two_ranks_the_one_outside_the_collective_is_odd():
    found = group(dumps(TP0=(LOCK, LOAD), TP1=(REDUCE, LOAD)))
    assert [one.ranks for one in found if one.odd] == [("TP0",)]


def test_many_outside_one_inside_a_collective():
    """The collective waits for those who have not come, however many they are."""
    stacks = {f"TP{i}": (LOCK, LOAD) for i in range(7)} | {"TP7": (REDUCE, LOAD)}
    odd = [one for one in group(dumps(**stacks)) if one.odd]
    assert [len(one.ranks) for one in odd] == [7]


def test_without_collectives_the_smaller_group_is_odd():
    other = (Frame("read", "weights.py", 7), LOAD)
    found = group(dumps(TP0=(LOCK, LOAD), TP1=(LOCK, LOAD), TP2=other))
    assert say_odd(found) == "TP2 differs: it is in read (weights.py:7)"


def test_all_alike_and_two_that_differ():
    assert say_odd(group(dumps(TP0=(REDUCE,), TP1=(REDUCE,)))) == ""
    both = group(dumps(TP0=(LOCK,), TP1=(LOAD,)))
    assert not any(one.odd for one in both)


def test_a_rank_without_a_stack_is_left_out():
    found = group([Dump("TP0", 1, (LOCK,)), Dump("TP1", 2, why="no")])
    assert [one.ranks for one in found] == [("TP0",)]


def test_a_deep_stack_is_cut():
    deep = tuple(Frame(f"f{i}", "x.py", i) for i in range(30))
    lines = describe(group([Dump("", 1, deep)]))
    assert lines[0] == "rank 0:" and lines[-1] == "    ... 22 frames further out"


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/opt/python/sglang/srt/utils.py", "sglang/srt/utils.py"),
        ("/v/lib/python3.11/site-packages/torch/a.py", "torch/a.py"),
        ("/usr/lib/python3.11/threading.py", "threading.py"),
        ("/home/me/deep/down/tool.py", "down/tool.py"),
        ("<string>", "<string>"),
    ],
)  # fmt: skip
def test_a_short_name(path, short):
    assert short_file(path) == short


def test_unmoving_counts_from_the_first_of_equal_stacks():
    watched = Unmoving()
    first, second = dumps(TP0=(LOCK,), TP1=(REDUCE,)), dumps(TP0=(LOAD,), TP1=(REDUCE,))
    for at, some in ((0.0, first), (5.0, second), (10.0, second), (15.0, second)):
        watched.feed(some, at)
    assert watched.since == 5.0
    watched.feed([Dump("TP0", 1, (LOAD,)), Dump("TP1", 2, why="gone")], 20.0)
    assert watched.since is None, "of a rank without a stack nothing is known"


@pytest.mark.parametrize("text", ["", "nonsense", "{}", "[]", "null"])
def test_what_pyspy_may_say_instead(text):
    with pytest.raises(ValueError):
        read_pyspy(text)


def test_pyspy_prefers_the_main_thread():
    threads = [
        {"pid": 5, "os_thread_id": 9, "thread_name": "x", "frames": []},
        {
            "pid": 5,
            "os_thread_id": 5,
            "thread_name": "MainThread",
            "frames": [{"name": "wait", "filename": "/a/b.py", "line": 3}],
        },
    ]
    assert read_pyspy(json.dumps(threads)) == (Frame("wait", "a/b.py", 3),)


def test_faulthandlers_own_words(tmp_path):
    """Read back what this python really prints, with a second thread."""
    script = (
        "import faulthandler, threading, time, sys\n"
        "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
        "def outer():\n    inner()\n"
        "def inner():\n    faulthandler.dump_traceback(sys.stderr)\n"
        "outer()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    found = read_faulthandler(done.stderr.splitlines())
    assert [one.function for one in found] == ["inner", "outer", "<module>"]
    assert [one.line for one in found] == [6, 4, 7]


def test_no_faulthandler_in_these_lines():
    assert read_faulthandler(["hello", '  File "x", line 3 in y']) == ()


WAITS = """
import faulthandler, os, signal, sys, threading
def wait_for_a_lock():
    lock = threading.Lock(); lock.acquire()
    print("patchkit stack-dump: SIGUSR2, pid", os.getpid(), file=sys.stderr, flush=True)
    lock.acquire()
if len(sys.argv) > 1:
    faulthandler.register(signal.SIGUSR2, sys.__stderr__)
wait_for_a_lock()
"""


@pytest.fixture
def waiting(tmp_path):
    """Makes a python that waits for a lock, its stderr in a log."""
    script, started = tmp_path / "waits.py", []
    script.write_text(WAITS)

    def start(*arguments):
        log = tmp_path / "log"
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(script), *arguments], stderr=output
            )
        started.append(process)
        while b"pid" not in log.read_bytes():
            time.sleep(0.02)
        return process, log

    yield start
    for process in started:
        process.kill()
        process.wait()


def reader(log):
    at = [log.stat().st_size]

    def read():
        data = log.read_bytes()[at[0] :]
        at[0] += len(data)
        return data.decode().splitlines()

    return read


def test_pyspy_on_a_process_that_waits(waiting):
    pytest.importorskip("psutil")
    if dumping.find_pyspy() is None:
        pytest.skip("py-spy is not installed")
    process, log = waiting()
    (found,) = dumping.take({process.pid: "TP0"}, [], reader(log))
    if "not permitted" in found.why:
        pytest.skip(found.why)
    assert found.how == "py-spy", found
    assert found.stack[0].function == "wait_for_a_lock"


def test_where_pyspy_may_not_look_the_process_writes_itself(
    waiting, tmp_path, monkeypatch
):
    denied = tmp_path / "py-spy"
    denied.write_text("#!/bin/sh\necho 'Error: Permission Denied' >&2\nexit 1\n")
    denied.chmod(0o755)
    monkeypatch.setenv("PATCHKIT_PYSPY", str(denied))
    process, log = waiting("registered")
    offered = [dumping.offered_by(line) for line in log.read_text().splitlines()]
    assert offered == [process.pid]
    (found,) = dumping.take({process.pid: "TP0"}, offered, reader(log))
    assert found.how == "SIGUSR2", found
    assert found.stack[0].function == "wait_for_a_lock"
    assert process.poll() is None, "it goes on"


@pytest.mark.parametrize("offered", [False, True])
def test_a_process_without_a_handler_is_not_signalled(
    waiting, tmp_path, monkeypatch, offered
):
    """The signal would end it, whatever a line in the log says."""
    monkeypatch.setenv("PATCHKIT_PYSPY", str(tmp_path / "none"))
    process, log = waiting()
    (found,) = dumping.take(
        {process.pid: ""}, [process.pid] if offered else [], reader(log)
    )
    assert not found.stack and "py-spy can't be run" in found.why
    time.sleep(0.2)
    assert process.poll() is None


def test_it_is_known_who_catches_the_signal():
    assert not dumping.catches_sigusr2(os.getpid())
    faulthandler.register(signal.SIGUSR2)
    try:
        assert dumping.catches_sigusr2(os.getpid())
    finally:
        faulthandler.unregister(signal.SIGUSR2)
    assert not dumping.catches_sigusr2(2**22 + 1)
