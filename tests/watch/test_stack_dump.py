"""What the recipe stack-dump inserts, run: gated, harmless, and heard by watch."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from support import ROOT

from patchkit.watch.dumping import offered_by
from patchkit.watch.stacks import read_faulthandler

CASE = ROOT / "fixtures/cases/stack_dump/scheduler-has_the_names/after.py"


@pytest.fixture
def run(tmp_path):
    """Imports the patched file, then waits in ``waits``; its stderr is a file."""
    processes = []
    script = tmp_path / "server.py"
    script.write_text(
        f"import runpy, threading\nrunpy.run_path({str(CASE)!r})\n"
        "def waits():\n    print('ready', flush=True)\n    threading.Event().wait()\n"
        "waits()\n"
    )

    def start(**variables):
        log = tmp_path / "log"
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            stderr=open(log, "wb"),  # noqa: SIM115
            env=variables,
        )
        processes.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process, log

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "variables",
    [
        {"PATCHKIT_STACK_DUMP": "1"},
        {"EAGLE3_DEBUG": "1"},
        {"PATCHKIT_STACK_DUMP": "yes", "EAGLE3_DEBUG": "0"},
    ],
)
def test_on_the_process_says_so_and_writes_its_stacks(run, variables):
    process, log = run(**variables)
    assert [offered_by(one) for one in log.read_text().splitlines()] == [process.pid]
    for count in (1, 2):
        process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + 10
        while log.read_text().count("in <module>") < count:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    stack = read_faulthandler(log.read_text().splitlines())
    assert "waits" in [frame.function for frame in stack]
    assert process.poll() is None


@pytest.mark.parametrize(
    "variables",
    [{}, {"PATCHKIT_STACK_DUMP": "0", "EAGLE3_DEBUG": "1"}, {"EAGLE3_DEBUG": "off"}],
)
def test_off_nothing_is_said_and_the_signal_does_what_it_always_did(run, variables):
    process, log = run(**variables)
    process.send_signal(signal.SIGUSR2)
    assert process.wait(10) == -signal.SIGUSR2
    assert log.read_text() == ""
