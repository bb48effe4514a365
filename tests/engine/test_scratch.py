"""Temporary folders and shared memory go with the run that made them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import enginekit as kit
import pytest

from patchkit.verify import scratch
from patchkit.verify.interpreter import has_torch

HOLD = """
import sys, time
from patchkit.verify.scratch import MEMORY, Scratch
with Scratch("verify") as folder:
    (folder / "some").mkdir()
    (folder / "some" / "file").touch()
    (MEMORY / f"{folder.name}-1").touch()
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(scratch, "MEMORY", memory)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path


def holding(where: Path) -> tuple[subprocess.Popen[str], Path]:
    """Another process with a folder."""
    code = HOLD.replace("with Scratch", "import patchkit.verify.scratch as one\n"
        f"from pathlib import Path\nMEMORY = one.MEMORY = Path({str(where)!r},"
        " 'memory')\nwith Scratch", 1)  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ
        | {"TMPDIR": str(where), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def left(where: Path) -> set[str]:
    return {one.name for one in where.rglob("*")} - {"memory"}


def ended(process: subprocess.Popen[str], number: int) -> int:
    process.send_signal(number)
    code = process.wait(20)
    assert process.stdout is not None
    process.stdout.close()
    return code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing(temporary: Path, number: int) -> None:
    process, folder = holding(temporary)
    assert folder.is_dir() and left(temporary) >= {"file", f"{folder.name}-1"}
    code = ended(process, number)
    assert code in (128 + number, -number) and not left(temporary)


def test_what_was_killed_is_removed_by_the_next_run_and_nothing_else(
    temporary: Path,
) -> None:
    running, held = holding(temporary)
    killed, gone = holding(temporary)
    ended(killed, signal.SIGKILL)
    assert gone.is_dir() and held.is_dir()
    (temporary / "patchkit-verify-other").mkdir()  # without our lock
    (temporary / "memory" / "psm_1").touch()
    with scratch.Scratch("canary") as folder:
        assert folder.is_dir() and not gone.exists()
        assert held.is_dir() and (held / "some" / "file").exists()
        memory = {one.name for one in (temporary / "memory").iterdir()}
        assert memory == {f"{held.name}-1", "psm_1"}
        scratch.sweep()
        assert folder.is_dir()
    ended(running, signal.SIGTERM)
    assert left(temporary) == {"patchkit-verify-other", "psm_1"}


def test_a_handler_that_was_there_before_stays(temporary: Path) -> None:
    def ours(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGTERM, ours)
    try:
        with scratch.Scratch("canary"):
            assert signal.getsignal(signal.SIGTERM) is ours
            assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.engines
@pytest.mark.skipif(not scratch.MEMORY.is_dir(), reason="looks into /dev/shm")
@pytest.mark.skipif(not has_torch(kit.PYTHON), reason="needs the verify extra")
@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_engine_leaves_no_shared_memory(version: str, number: int) -> None:
    def memory() -> set[str]:
        """Engines may run elsewhere: of these, only what is named as theirs."""
        return {one.name for one in scratch.MEMORY.iterdir()}

    run = kit.Run(version, 1, tp=2)
    try:
        before = memory()
        run.look(1)
        (folder,) = (run.folder / "tmp").glob("patchkit-verify-*")
        named = {one for one in memory() if folder.name in one}
        assert named, "two ranks share memory"
        os.kill(run.parent, number)
        assert run.gone()
        if number == signal.SIGKILL:
            assert folder.is_dir()
            subprocess.run(
                [sys.executable, "-c",
                 "from patchkit.verify.scratch import sweep; sweep()"],
                env=os.environ | {"TMPDIR": str(run.folder / "tmp"),
                                  "PYTHONPATH": os.pathsep.join(sys.path)},
                check=True,
            )  # fmt: skip
        assert kit.wait_for(lambda: not folder.exists(), 20)
        assert not {one for one in memory() if folder.name in one}
        new = {one for one in memory() - before if one.startswith("sglang_loads")}
        assert not new
    finally:
        run.end()
