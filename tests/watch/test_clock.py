"""When lines were written, where the server's clock or zone is not ours."""

from __future__ import annotations

import os
import re
import subprocess
import time

import pytest
from commandkit import run, server, verdict
from watchkit import BEGAN, Play, stamp

from patchkit.watch.clock import LogClock
from patchkit.watch.lines import Line, last_stamp
from patchkit.watch.progress import show_seconds
from patchkit.watch.usage import CpuUse
from patchkit.watch.zone import zone_skew

HOUR = 3600.0
READY = "The server is fired up and ready to roll!"


@pytest.mark.parametrize(
    ("late", "zone", "skew"),
    [
        (0.4, None, 0.0),
        (5 * HOUR + 2, None, 5 * HOUR),
        (-9 * HOUR + 600, None, -9 * HOUR),
        (5.5 * HOUR + 1, None, 5.5 * HOUR),
        (2400.0, 0.0, 0.0),  # silent for 40 minutes, in our zone
        (5 * HOUR + 2400, 5 * HOUR, 5 * HOUR),
        (300 * HOUR, None, 0.0),  # an old log that was copied
    ],
)
def test_the_zone_of_a_log_is_guessed_by_when_it_was_last_written(late, zone, skew):
    assert LogClock().guess(BEGAN, BEGAN + late, zone) == skew


@pytest.mark.parametrize("hours", [-9, -5, 5.75, 8])
def test_lines_of_another_zone_are_of_this_server(hours):
    """It is attached to while it serves; its stamps are hours from ours."""
    play = Play()
    clock, phases = play.judge.clock, play.judge.phases
    clock.not_before = BEGAN - 2
    phases.started(BEGAN)
    clock.guess(BEGAN + 60 - hours * HOUR, BEGAN + 60, hours * HOUR)
    for after, text in ((5, "Load weight begin."), (60, READY)):
        line = stamp(after - hours * HOUR) + text
        play.judge.feed(line, BEGAN + 61, fresh=False)
    play.now = 61.0
    play.wait(1)
    assert "ready after 1 min 00 s" in play.verdict.says
    assert dict(play.verdict.phases)["start"] == 5


def test_the_start_of_a_process_is_not_moved_with_the_log():
    play = Play()
    play.judge.phases.started(BEGAN)
    play.judge.feed(stamp(4 - 5 * HOUR) + "Load weight begin.", BEGAN + 4)
    play.judge.feed(stamp(9 - 5 * HOUR) + READY, BEGAN + 9)
    assert play.judge.phases.began == BEGAN
    assert play.judge.phases.ready == BEGAN + 9


def test_an_old_log_that_comes_in_a_burst_keeps_its_times():
    """As `cat server.log | patchkit watch --log -`."""
    play = Play()
    for after, text in ((0, "a"), (30, "Load weight begin."), (90, READY)):
        play.judge.feed(stamp(after - 20000) + text, BEGAN)
    play.wait(1)
    assert "ready after 1 min 30 s" in play.verdict.says
    assert play.judge.phases.ready <= BEGAN


def test_a_second_is_where_in_it_the_line_was_seen():
    clock = LogClock()
    assert clock.time_of(Line("a", BEGAN), BEGAN + 0.7, True) == (BEGAN + 0.7, 0.0)
    assert clock.time_of(Line("b", BEGAN + 1), BEGAN + 1.2, True)[0] == BEGAN + 1.2
    # it came late: not after its second
    assert clock.time_of(Line("c", BEGAN + 2), BEGAN + 4, True)[0] == BEGAN + 2.999
    assert clock.time_of(Line("d", BEGAN + 9.25), BEGAN + 9.5, True)[0] == BEGAN + 9.25


def test_the_last_stamp_of_a_log():
    text = f"{stamp(1)}a\n{stamp(7, 'TP0')}b\na bar 7%\n".encode()
    assert last_stamp(text) == BEGAN + 7
    assert last_stamp(b"nothing\n") is None


@pytest.mark.skipif(
    not os.path.exists("/usr/share/zoneinfo/Asia/Tokyo"), reason="no zones here"
)
def test_the_zone_of_a_process():
    process = subprocess.Popen(["sleep", "60"], env={"TZ": "Asia/Tokyo"})
    try:
        while b"sleep" not in open(f"/proc/{process.pid}/cmdline", "rb").read():  # noqa: SIM115
            time.sleep(0.01)
        ours = time.localtime(BEGAN).tm_gmtoff
        assert zone_skew(process.pid, BEGAN) == ours - 9 * HOUR
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("zone", ["XYZ+5", "XYZ-8"])
def test_a_server_of_another_zone_that_serves(tmp_path, monkeypatch, zone):
    """Started in one zone, attached to in another."""
    log = tmp_path / "log"
    monkeypatch.setenv("TZ", zone)
    first = run("--json", "--until", "ready", "--log", log, "--", *server())
    monkeypatch.setenv("TZ", "UTC")
    pid = verdict(first)["child_pid"]
    try:
        done = run("--log", log, "--stall", "3", "--timeout", "20s")
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"READY the server is ready after \d+\.\d s", done.stdout)
        assert "-" not in done.stdout.split("a request")[0]
    finally:
        subprocess.run(["kill", "-TERM", str(pid)], check=True)


def test_cpu_is_a_share_of_the_time_between_two_looks():
    play, use = Play(ranks=("TP0",)), CpuUse()
    for seconds, total in ((1.0, 900.0), (1.5, 900.25)):
        play.now, play.cpu = seconds, 0.0
        play.sample()
        sample = play.judge.sample
        one = type(sample.ranks[0])("TP0", 100, 0.0, 0, 0, "S", total=total)
        use.feed(type(sample)(sample.at, True, (one,)))
        if total == 900.0:
            assert use.percent is None, "nothing was seen before"
    assert use.percent == pytest.approx(50)


def test_a_clock_that_is_set_back_makes_nothing_negative():
    """As daylight saving time does, at its end."""
    play = Play()
    play.judge.phases.started(BEGAN)
    for at, text in (
        (3604, "Load weight begin."),
        (40, "Load weight end."),
        (60, READY),
    ):
        play.judge.feed(stamp(at - 9000) + text, BEGAN, fresh=False)
    play.wait(1)
    assert "ready after 0.0 s" in play.verdict.says
    assert all(seconds >= 0 for _, seconds in play.verdict.phases)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(3.21, "3.2 s"), (200, "3 min 20 s"), (3900, "1 h 05 min"), (300000, "3 days")],
)
def test_a_time_in_words(seconds, shown):
    assert show_seconds(seconds) == shown
