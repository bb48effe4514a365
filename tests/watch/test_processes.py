"""Looking at processes that come and go."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

psutil = pytest.importorskip("psutil")

from patchkit.watch.processes import Tree, exit_status  # noqa: E402


@pytest.mark.parametrize("what", ["io_counters", "cpu_times", "memory_info", "cmdline"])
@pytest.mark.parametrize("error", [RuntimeError("/proc/7/io file was empty"),
                                   ValueError(), psutil.NoSuchProcess(7)])  # fmt: skip
def test_a_process_that_is_going_is_nothing_to_fall_over(monkeypatch, what, error):
    tree = Tree(os.getpid())

    def going(self):
        raise error

    # as psutil's own have them
    going.cache_activate = going.cache_deactivate = lambda process: None
    monkeypatch.setattr(psutil.Process, what, going)
    ranks, _ = tree.sample()
    assert ranks == ()


def test_children_that_come_and_go_all_the_time():
    script = (
        "import subprocess, time\nend = time.time() + 3\n"
        "while time.time() < end:\n    subprocess.run(['true'])\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        tree = Tree(process.pid)
        looks = 0
        while process.poll() is None:
            tree._next_scan = 0.0
            tree.sample()
            looks += 1
    assert looks > 5


def test_what_a_rank_forks_is_no_rank_though_it_has_its_title():
    """And so its end is not the rank's."""
    script = "import os, time\npid = os.fork()\ntime.sleep(60)\n"
    process = subprocess.Popen(
        ["sglang::scheduler_TP0", "-c", script], executable=sys.executable,
        start_new_session=True,
    )  # fmt: skip
    try:
        tree, deadline = Tree(process.pid), time.monotonic() + 20
        while len(tree._known) < 2 and time.monotonic() < deadline:
            tree._next_scan = 0.0
            ranks, others = tree.sample()
        assert len(tree._known) == 2
        ranks, others = tree.sample()
        assert [one.pid for one in ranks] == [process.pid] and others == ()
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_how_a_process_ended_that_nobody_has_collected():
    process = subprocess.Popen(["sh", "-c", "kill -9 $$"])
    deadline = time.monotonic() + 10
    while exit_status(process.pid) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert exit_status(process.pid) == -9
    process.wait()
    assert exit_status(process.pid) is None
    assert exit_status(os.getpid()) is None


def test_ranks_are_known_by_their_titles_and_what_they_start_is_theirs():
    start = "import subprocess; subprocess.run(['sleep', '60'])"
    script = (
        "import subprocess, sys, time\n"
        "for label in ('TP0', 'DP1_TP3', 'ATTN_CP1_TP0'):\n"
        f"    subprocess.Popen(['sglang::scheduler_' + label, '-c', {start!r}],"
        " executable=sys.executable)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        tree = Tree(process.pid)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            tree._next_scan = 0.0
            ranks, others = tree.sample()
            if len(ranks) == 3 and sum(map(len, tree._helpers.values())) == 3:
                break
            time.sleep(0.1)
        assert sorted(one.rank for one in ranks) == ["ATTN_CP1 TP0", "DP1 TP3", "TP0"]
        assert [one.pid for one in others] == [process.pid]
    finally:
        os.killpg(process.pid, 9)
        process.wait()
