"""Slow is not stuck."""

from __future__ import annotations

import pytest

from patchkit.watch.progress import Meter
from patchkit.watch.stall import GAIN, ProcessSample, Sample, Stall

STEP = 0.5


def rank(pid=1, *, cpu=0.0, memory=0, read=0, state="S", helpers=0.0):
    return ProcessSample(f"TP{pid}", pid, cpu, memory, read, state, helpers)


def run(make, *, told=lambda at: 1, seconds=30.0, step=STEP, gpu=None):
    """Samples ``make(at)`` each ``step``; the stall after ``seconds``."""
    stall, at = Stall(0.0), 0.0
    while at < seconds:
        at += step
        sample = Sample(at, True, tuple(make(at)), gpu=gpu(at) if gpu else None)
        stall.feed(sample, told(at))
    return stall, at


def test_nothing_moves():
    stall, at = run(lambda at: [rank(1), rank(2)])
    assert at - stall.quiet_since == pytest.approx(30, abs=2 * STEP)
    assert at - stall.frozen_since == pytest.approx(30, abs=2 * STEP)


@pytest.mark.parametrize(
    "moving",
    [
        lambda at: [rank(1), rank(2, read=int(at * GAIN))],
        lambda at: [rank(1), rank(2, memory=int(at * GAIN))],
        lambda at: [rank(1), rank(2, helpers=at, cpu=at)],
    ],
    ids=["reads", "grows", "compiles"],
)
def test_one_rank_that_gets_on_is_enough(moving):
    stall, at = run(moving)
    assert at - stall.quiet_since <= 2
    assert at - stall.frozen_since <= 2


def test_lines_in_the_log_are_movement():
    stall, at = run(lambda at: [rank(1)], told=lambda at: int(at / 4))
    assert at - stall.frozen_since <= 4


@pytest.mark.parametrize(
    "spinning",
    [
        lambda at: [rank(1, cpu=at), rank(2, cpu=at)],
        lambda at: [rank(1, cpu=0.03 * at), rank(2)],
        lambda at: [rank(1, state="R"), rank(2)],
    ],
    ids=["full speed", "starved", "waits for a CPU"],
)
def test_cpu_is_no_progress_but_not_quiet_either(spinning):
    stall, at = run(spinning)
    assert at - stall.quiet_since <= 2
    assert at - stall.frozen_since >= 29


def test_a_busy_gpu_is_not_quiet():
    stall, at = run(lambda at: [rank(1)], gpu=lambda at: (0, 100))
    assert at - stall.quiet_since <= 1
    stall, at = run(lambda at: [rank(1)], gpu=lambda at: (0, 0))
    assert at - stall.quiet_since >= 29


def test_the_odd_wake_up_is_quiet():
    """A thread that wakes each second, for a hundredth of a second in five."""
    stall, at = run(lambda at: [rank(1, cpu=0.01 * int(at / 5))])
    assert at - stall.quiet_since >= 29


def test_quiet_counts_from_the_last_use_and_not_from_its_window():
    stall, _ = run(lambda at: [rank(1, cpu=min(at, 12.0))])
    assert stall.quiet_since == pytest.approx(12.0, abs=2 * STEP)


def test_time_in_which_nobody_looked_does_not_count():
    stall = Stall(0.0)
    for at in (0.5, 1.0, 61.0, 61.5):
        stall.feed(Sample(at, True, (rank(1),)), 1)
    assert 61.5 - stall.quiet_since < 8


def test_before_there_are_ranks_the_server_counts():
    stall = Stall(0.0)
    for at in range(1, 30):
        others = (ProcessSample("", 5, float(at), 0, 0, "S"),)
        stall.feed(Sample(float(at), True, (), others), 1)
    assert 29 - stall.quiet_since <= 1


def test_a_load_without_log_lines_has_a_percentage_and_an_eta():
    meter = Meter()
    for at in range(20):
        loaded = (("TP0", at * 10), ("TP1", at * 6))
        meter.feed(
            Sample(float(at), True, loaded=loaded, checkpoint=1000, checkpoint_name="t")
        )
    assert meter.fraction == pytest.approx(0.152)
    assert meter.spread() == pytest.approx((0.114, 0.19))
    assert meter.eta == pytest.approx((1 - 0.152) / 0.008, rel=0.01)
    assert meter.total == 1000


def test_the_next_checkpoint_begins_at_nothing():
    meter = Meter()
    meter.feed(
        Sample(1.0, True, loaded=(("", 90),), checkpoint=100, checkpoint_name="t")
    )
    meter.feed(Sample(2.0, True, loaded=(), checkpoint=50, checkpoint_name="d"))
    assert (meter.name, meter.fraction, meter.eta) == ("d", 0.0, None)
