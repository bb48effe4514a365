"""A long run of SGLang's engine in a session of its own, to be looked at and ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from support import release_tree

from patchkit.canary.folder import write_pair
from patchkit.verify import pair
from patchkit.verify.jobs import MODULES, Job, module_name
from patchkit.verify.session import Session
from patchkit.verify.trees import CORE, write_overlay

PYTHON = os.environ.get("PATCHKIT_PROBE_PYTHON", sys.executable)
#: More tokens than are generated before something ends the run.
LONG = pair.Variant(generate=(pair.Generate("long", pair.BATCH.prompts, 1900),))


def write_job(version: str, folder: Path, variant: pair.Variant = LONG) -> Job:
    """With the stock files of a release as its overlay."""
    package = release_tree(version) / "sglang"
    write_pair(pair.plan(), folder / "pair")
    (folder / "request.json").write_text(
        json.dumps(variant.request(str(folder / "pair")))
    )
    stock = {path: (package / path).read_bytes() for path in CORE}
    return Job(
        "engine",
        write_overlay(stock, folder / "overlay"),
        scenario=f"engine:{folder / 'request.json'}",
    )


def session(version: str, **more: object) -> Session:
    package = release_tree(version) / "sglang"
    modules = [module_name(path) for path in CORE]
    assert set(modules) == set(MODULES.values())
    return Session(PYTHON, package, modules, engine=True, **more)  # type: ignore[arg-type]


# -- processes ----------------------------------------------------------------------


def below(pid: int) -> dict[int, list[int]]:
    """Every process that ``pid`` has started, with its children."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry))
    found: dict[int, list[int]] = {}
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        found[one] = parents.get(one, [])
        waiting += found[one]
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that run; a zombie does not."""
    found = set()
    for pid in pids:
        try:
            stat = Path("/proc", str(pid), "stat").read_text()
        except OSError:
            continue
        if stat.rpartition(")")[2].split()[0] != "Z":
            found.add(pid)
    return found


def ports(pids: set[int]) -> set[str]:
    """Sockets on which these processes listen, by inode."""
    held = set()
    for pid in pids:
        for link in Path("/proc", str(pid), "fd").glob("*"):
            try:
                held.add(os.readlink(link).removeprefix("socket:[").rstrip("]"))
            except OSError:
                continue
    return held & listening()


def listening() -> set[str]:
    """Every inode of a TCP socket that listens."""
    rows: list[str] = []
    for name in ("tcp", "tcp6"):
        rows += Path("/proc/net", name).read_text().splitlines()[1:]
    return {row.split()[9] for row in rows if row.split()[3] == "0A"}


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Run:
    """A parent, its probe, and engines that are at work one after another: each is
    started when the one before has ended."""

    def __init__(self, version: str, engines: int, tp: int = 1) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ek-", dir="/tmp"))
        self.tp = tp
        job = write_job(version, self.folder, replace(LONG, tp=tp))
        (self.folder / "job.json").write_text(json.dumps(job.to_json()))
        (self.folder / "tmp").mkdir()
        path = os.pathsep.join(one for one in sys.path if one)
        self.process = subprocess.Popen(
            [sys.executable, __file__, version, str(self.folder), str(engines)],
            env=os.environ | {"TMPDIR": str(self.folder / "tmp"), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.parent = self.process.pid
        self.all: set[int] = {self.parent}

    def look(self, engine: int) -> None:
        """Wait until that one (from 1 on) has verified something; note each process by
        its pid, and the ports."""
        steps = f"tmp/patchkit-verify-*/jobs/job{engine}/engine/*.jsonl"
        started = wait_for(
            lambda: any(self.folder.glob(steps)) or self.process.poll() is not None
        )
        self.steps = [int(file.stem) for file in self.folder.glob(steps)]
        assert started and self.steps, "the engine never came to a verification"
        tree = below(self.parent)
        (self.zygote,) = tree[self.parent]
        (self.worker,) = tree[self.zygote]
        self.ranks = tree[self.worker]
        self.all |= set(tree)
        self.ports = ports(self.all)
        assert len(self.ranks) == self.tp + 1, "schedulers and a detokenizer"
        assert self.steps[0] in self.ranks
        assert self.ports, "a rank listens, for the others of its group"

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def result(self) -> dict[str, str]:
        """What the parent says of the engine that has ended."""
        assert self.process.stdout is not None
        found: dict[str, str] = json.loads(self.process.stdout.readline())
        return found

    def gone(self, *but: int) -> bool:
        """Whether soon none is left, except ``but``, and no port is taken."""
        return wait_for(
            lambda: not alive(self.all - {*but}) and not self.ports & listening(),
            20,
        )

    def end(self) -> None:
        for pid in alive(self.all):
            self.kill(pid)
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        shutil.rmtree(self.folder)


def main() -> None:
    version, folder = sys.argv[1], Path(sys.argv[2])
    job = Job.from_json(json.loads((folder / "job.json").read_text()))
    with session(version, timeout=300) as running:
        for _ in range(int(sys.argv[3])):
            (result,) = running.run([job])
            said = {"status": result.status, "error": result.error}
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
