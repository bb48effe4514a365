"""What verdicts say: places, graphs that are not there, last lines that are none."""

from __future__ import annotations

import os

import pytest
from commandkit import run
from watchkit import Play, traceback

from patchkit.watch.settings import Until
from patchkit.watch.verdict import Outcome
from patchkit.watch.writers import is_full

pytest.importorskip("psutil")


def test_a_place_is_in_or_after():
    play = Play().arguments(speculative_algorithm="EAGLE3")
    for rank in play.ranks:
        play.say("Load weight begin.", rank).say("Load weight end.", rank)
    places = [play.judge.phases.place(rank) for rank in (None, "TP0")]
    assert places == ["after weights target"] * 2
    play.say("Scheduler hit an exception: " + traceback("ValueError: no"), "TP1")
    play.wait(3)
    assert "TP1 failed after weights target: ValueError: no" in play.verdict.says


def test_a_crash_is_in_the_phase_in_which_it_was():
    play = Play().arguments()
    for rank in play.ranks:
        play.say("Load weight begin.", rank)
    play.wait(3, root=False, exit_code=1)
    assert play.verdict.says == "the server ended with exit code 1 in weights"
    assert dict(play.verdict.phases)["weights"] == 0, "its end was not waited for"


@pytest.mark.parametrize("told", [{"disable_cuda_graph": True}, {}])
def test_until_graphs_where_there_are_none(told):
    play = Play(until=Until.GRAPHS).arguments(**told)
    play.say("max_total_num_tokens=4096, chunked", "TP0").wait(1)
    assert (play.verdict.outcome, play.verdict.cause) == (Outcome.REACHED, "no-graphs")
    why = "they are disabled" if told else "no rank said that it captured any"
    assert f"without CUDA graphs: {why}" in play.verdict.says
    captured = Play(until=Until.GRAPHS).load()
    captured.say("max_total_num_tokens=4096, chunked", "TP0").wait(1)
    assert captured.verdict.says == "every rank has its CUDA graphs"


def test_a_command_that_says_nothing(tmp_path):
    done = run("--log", tmp_path / "log", "--", "false")
    assert done.returncode == 1
    assert "CRASHED the server ended with exit code 1" in done.stderr
    assert "last lines" not in done.stderr
    assert "next: it wrote nothing: is it the right command?" in done.stderr


def test_a_full_disk_is_not_the_servers_fault():
    play = Play().arguments()
    play.judge.log_is_full = True
    play.wait(3, root=False, exit_code=120)
    assert play.verdict.cause == "log-disk-full" and "df -h" in play.verdict.next


def test_lines_that_a_full_disk_may_have_cost_are_noted():
    play = Play(ranks=(), timeout=5.0).arguments()
    play.judge.log_is_full = True
    play.wait(6)
    assert play.verdict.outcome is Outcome.LOADING
    assert "the disk of the log is full" in play.verdict.notes[0]


def test_a_full_disk_is_seen(tmp_path, monkeypatch):
    assert not is_full(tmp_path) and not is_full(tmp_path / "none")
    full = os.statvfs_result((4096, 4096, 1000, 0, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert is_full(tmp_path)


@pytest.mark.parametrize("log", ["/dev/full", "/dev/null"])
def test_the_log_of_a_server_that_it_starts_is_a_file(log):
    done = run("--log", log, "--", "touch", "x")
    assert done.returncode == 2 and f"--log {log} is no file" in done.stderr
