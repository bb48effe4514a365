"""``status --pid``: which copy a process runs, and what it does not use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import run_patchkit

from patchkit.report.style import Style
from patchkit.watch.running import Running, compare, running_text, uses_all

psutil = pytest.importorskip("psutil")

HERE = Path("/opt/sglang")


def running(**values):
    told = {"pid": 7, "command": "x", "started": 1000.0, "ranks": 2, "package": HERE,
            "how": "its stack"} | values  # fmt: skip
    return Running(**told)


def test_what_was_written_later_is_not_loaded():
    found = compare(running(), HERE, {"a.py": 999.0, "b.py": 1001.0})
    assert [(one["path"], one["loaded"]) for one in found["files"]] == [
        ("a.py", True),
        ("b.py", False),
    ]
    assert found["runs_this_copy"] and not uses_all(found)
    text = running_text(found, Style(False))
    assert "b.py" in text and "NOT LOADED" in text and "a.py" not in text
    assert "next: restart the server" in text
    assert uses_all(compare(running(), HERE, {"a.py": 999.0}))


def test_another_copy():
    found = compare(running(package=Path("/other/sglang")), HERE, {"a.py": 999.0})
    assert not uses_all(found) and found["runs_this_copy"] is False
    text = running_text(found, Style(False))
    assert "warning: it runs /other/sglang (its stack)" in text


def test_a_copy_that_is_not_known():
    found = compare(running(package=None, how="nothing may be read"), HERE, {})
    assert found["runs_this_copy"] is None and not uses_all(found)
    assert "can't be told: nothing may be read" in running_text(found, Style(False))


@pytest.fixture
def server(tree):
    """A process that imports a tree by PYTHONPATH, started before the patch."""
    folder = tree("0.5.9")
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(300)"],
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    yield folder, process.pid
    process.kill()
    process.wait()


def test_a_server_older_than_the_patch(server):
    folder, pid = server
    said = run_patchkit("status", "--target", folder, "--pid", str(pid), "--check")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "it runs this copy (by its PYTHONPATH)" in said.stdout
    time.sleep(0.1)
    assert run_patchkit("apply", "debug-logging", "--target", folder).returncode == 0
    said = run_patchkit("status", "--target", folder, "--pid", str(pid), "--check")
    assert said.returncode == 1
    assert said.stdout.count("NOT LOADED") >= 3
    assert all(len(line) <= 80 for line in said.stdout.splitlines()[-12:])
    told = run_patchkit("status", "--target", folder, "--pid", str(pid), "--json")
    process = json.loads(told.stdout)["process"]
    assert process["pid"] == pid and process["runs_this_copy"] is True


def test_a_server_of_another_tree(server, tree):
    folder, pid = server
    other = tree("0.5.9", "other")
    said = run_patchkit("status", "--target", other, "--pid", str(pid), "--check")
    assert said.returncode == 1
    assert f"warning: it runs {folder / 'sglang'}" in said.stdout


def test_no_such_process(tree):
    said = run_patchkit("status", "--target", tree("0.5.9"), "--pid", "4194305")
    assert said.returncode == 2 and "there is no such process" in said.stderr
