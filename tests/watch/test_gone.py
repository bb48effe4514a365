"""A log that no process writes any more."""

from __future__ import annotations

import subprocess
import time

import pytest
from commandkit import run
from watchkit import BEGAN, Play, stamp

from patchkit.watch import writers
from patchkit.watch.verdict import Outcome
from patchkit.watch.writers import is_written

READY = "The server is fired up and ready to roll!"
pytest.importorskip("psutil")


def played(*, ready, **settings):
    """A log, and no process; as far as its weights, or READY."""
    play = Play(ranks=(), **settings).arguments().say("Load weight begin.", "TP0")
    return play.say(READY) if ready else play


def passes(play, seconds, written):
    for _ in range(int(2 * seconds)):
        play.now += 0.5
        play.judge.feed_writing(written, BEGAN + play.now)
        play.verdict = play.verdict or play.judge.decide(BEGAN + play.now)
    return play


def test_while_it_loaded():
    play = passes(played(ready=False, stall=20.0), 19, False)
    assert play.verdict is None, "a server may just be being started"
    passes(play, 2, False)
    assert (play.verdict.outcome, play.verdict.cause) == (Outcome.CRASHED, "gone")
    assert "the server is gone, in weights" in play.verdict.says
    assert play.verdict.details[-1] == "  Load weight begin."
    assert dict(play.verdict.phases)["weights"] == 0, "not until now"


def test_after_it_was_ready():
    play = passes(played(ready=True, request=True, deadline=5.0), 6, False)
    assert play.verdict.outcome is Outcome.CRASHED
    assert "the server is gone, after it was ready" in play.verdict.says


def test_what_may_not_be_looked_at_is_not_called_gone():
    assert passes(played(ready=False, stall=20.0), 60, None).verdict is None
    play = passes(played(ready=True, request=True, deadline=5.0), 6, None)
    assert play.verdict.outcome is Outcome.UNHEALTHY
    assert "--url" in play.verdict.next and "--no-request" in play.verdict.next


def test_a_log_that_is_written_is_believed():
    assert passes(played(ready=False, stall=20.0), 60, True).verdict is None
    play = passes(played(ready=True, request=True), 1, True)
    assert play.verdict.outcome is Outcome.READY
    assert "--url" in play.verdict.notes[0]


@pytest.mark.parametrize("ready", [True, False])
def test_the_command_ends(tmp_path, ready):
    log = tmp_path / "log"
    log.write_text(f"{stamp(0)}Load weight begin.\n" + f"{stamp(9)}{READY}\n" * ready)
    if is_written(log) is None:
        pytest.skip("who writes here can't be known")
    done = run("--log", log, "--deadline", "1", "--stall", "1")
    assert done.returncode == 1, done.stdout
    assert done.stdout.startswith("CRASHED the server is gone,")
    assert "next: start it again" in done.stdout


@pytest.mark.parametrize(
    ("mount", "container", "known"),
    [
        (("/", "ext4"), False, False),
        (("/", "overlay"), True, False),
        (("/logs", "ext4"), True, None),
        (("/logs", "ext4"), False, False),
        (("/", "nfs4"), False, None),
        (("/home", "fuse.sshfs"), False, None),
    ],
)
def test_who_is_out_of_sight_may_write(tmp_path, monkeypatch, mount, container, known):
    (tmp_path / "log").touch()
    monkeypatch.setattr(writers, "_mount_of", lambda path: mount)
    monkeypatch.setattr(writers, "_in_container", lambda: container)
    assert is_written(tmp_path / "log") is known


def test_who_writes_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "_is_shared", lambda path: False)
    log = tmp_path / "log"
    log.touch()
    assert is_written(log) is False
    with open(log):
        assert is_written(log) is False
    with open(log, "ab") as file:
        assert is_written(log) is False, "ourselves"
        one = subprocess.Popen(["sleep", "60"], stdout=file)
    try:
        deadline = time.monotonic() + 10
        while not is_written(log) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert is_written(log)
    finally:
        one.kill()
        one.wait()
    assert is_written(tmp_path / "none") is None
