"""A running probe: start it, hand it jobs, gather results. Never imports torch.

with Session(python, package, deferred=modules) as session:
    results = session.run(jobs)  # as many as you like, as often as you like
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from patchkit.verify.jobs import Job, Result
from patchkit.verify.scratch import Scratch

#: Beyond the probe's own deadline, after which it is thought dead.
MARGIN = 15.0

#: Workers at once on CUDA: each takes some 500 MB of a device.
CUDA_SLOTS = 4

#: What faulthandler writes above the stacks.
_TIMED_OUT = "Timeout ("

Json = dict[str, Any]


class ProbeFailed(Exception):
    """The probe could not be set up; ``step``, ``error`` and ``trace`` say where."""

    def __init__(
        self, step: str, error: str, trace: Sequence[str] = (), *, hung: bool = False
    ):
        super().__init__(f"{step}: {error}")
        self.hung = hung
        self.step = step
        self.error = error
        self.trace = tuple(trace)


class Session:
    """One zygote over the tree whose package is ``package``, which is not written to.

    ``deferred``: every module that any job will overlay. ``timeout``: seconds for each
    job; ``start_timeout``: for the set-up. ``slots``: workers at once. ``device``:
    ``cpu`` or ``cuda``. ``fresh``: why every worker is to import for itself, as each
    does where CUDA does not survive a fork. ``engine``: some jobs run SGLang's engine,
    for which more is imported. ``keep``: where each job leaves a folder of
    its name, with logs and records of taps.
    """

    def __init__(
        self,
        python: str,
        package: Path,
        deferred: Iterable[str],
        *,
        timeout: float = 120.0,
        start_timeout: float = 120.0,
        slots: int = 0,
        device: str = "cpu",
        fresh: str = "",
        engine: bool = False,
        keep: Path | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.python = python
        self.package = package
        self.deferred = sorted(set(deferred))
        self.timeout = timeout
        self.start_timeout = start_timeout
        self.slots = slots or os.cpu_count() or 1
        if device == "cuda":
            self.slots = min(self.slots, CUDA_SLOTS)
        self.device = device
        self.fresh = fresh
        self.engine = engine
        self.keep = keep
        self.say = say
        self.info: Json = {}
        self._step = "start"
        self._buffer = b""

    def __enter__(self) -> Session:
        """Start and wait until it is ready. Raises ProbeFailed."""
        self._scratch = Scratch("verify")
        self.folder = self._scratch.folder
        try:
            self._start()
            self.info = self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "process"):
            self._end()
            self._inlet.close()
            self.log.close()
        self._scratch.close()

    def run(
        self,
        jobs: Sequence[Job],
        on_result: Callable[[Result], None] = lambda result: None,
    ) -> list[Result]:
        """Every rank of every job, in the order in which they ended.

        Never raises for what a job does: a hang, a crash and a refusal are results.
        """
        for job in jobs:
            self._write(job.to_json())
        missing = {(job.name, rank) for job in jobs for rank in range(job.ranks)}
        assert len(missing) == sum(job.ranks for job in jobs), "two jobs of one name"
        found: list[Result] = []
        rounds = len(missing) // self.slots + 2
        deadline = time.monotonic() + rounds * (self.timeout + MARGIN)
        while missing:
            message = self._read(deadline)
            if message is None:
                trace = tuple(self._log_tail())
                for name, rank in sorted(missing):
                    why = "the probe itself ended before this job did"
                    found.append(Result(name, rank, "died", error=why, trace=trace))
                break
            if message["event"] == "result":
                result = Result.from_json(message["result"])
                missing.discard((result.job, result.rank))
                found.append(result)
                on_result(result)
        return found

    # -- the process ----------------------------------------------------------------

    def _start(self) -> None:
        inlet, outlet = os.pipe()
        self._inlet = os.fdopen(inlet, "rb", buffering=0)
        self.log = open(self.folder / "log", "wb+")  # noqa: SIM115
        command = [self.python, "-m", "patchkit.verify.probe.zygote", str(outlet)]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=self.log,
                stderr=self.log,
                pass_fds=(outlet,),
                cwd=self.folder,
                env=self._environment(),
                start_new_session=True,
            )
        except OSError as problem:
            self._inlet.close()
            raise ProbeFailed(f"start {self.python}", str(problem)) from None
        finally:
            os.close(outlet)
        jobs = self.folder / "jobs"
        jobs.mkdir()
        self._write(
            {
                "target": str(self.package.parent),
                "deferred": self.deferred,
                "device": self.device,
                "fresh": self.fresh,
                "engine": self.engine,
                "folder": str(jobs),
                "keep": str(self.keep or ""),
                "timeout": self.timeout,
                "start_timeout": self.start_timeout,
                "slots": self.slots,
            }
        )

    def _environment(self) -> dict[str, str]:
        """Ours, with ``patchkit`` importable, and nothing else of this installation:
        its other packages may not fit that interpreter."""
        lane = self.folder / "import"
        lane.mkdir()
        (lane / "patchkit").symlink_to(Path(__file__).resolve().parents[1])
        kept = {k: v for k, v in os.environ.items() if not k.startswith("EAGLE3_DEBUG")}
        for name in ("PYTHONHOME", "PYTHONSTARTUP", "RANK", "WORLD_SIZE"):
            kept.pop(name, None)
        inherited = kept.get("PYTHONPATH")
        kept["PYTHONPATH"] = os.pathsep.join([str(lane), *filter(None, [inherited])])
        kept["PYTHONDONTWRITEBYTECODE"] = "1"
        kept["OMP_NUM_THREADS"] = "1"
        kept["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / "inductor")
        return kept

    def _wait_until_ready(self) -> Json:
        deadline = time.monotonic() + self.start_timeout + MARGIN
        while True:
            message = self._read(deadline)
            if message is None:
                log = self._log_tail()
                hung = any(line.startswith(_TIMED_OUT) for line in log)
                hung = hung or time.monotonic() >= deadline
                why = f"no end after {self.start_timeout:g} s"
                raise ProbeFailed(
                    self._step, why if hung else "the probe ended", log, hung=hung
                )
            if message["event"] == "step":
                self._step = message["name"]
                self.say(self._step)
            elif message["event"] == "failed":
                trace = [*message["trace"], *self._log_tail()]
                raise ProbeFailed(message["step"], message["error"], trace)
            elif message["event"] == "ready":
                info: Json = message["info"]
                return info

    def _write(self, value: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(value).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; whoever reads next is told

    def _read(self, deadline: float) -> Json | None:
        """The next message; ``None`` at its end, or past ``deadline``."""
        while b"\n" not in self._buffer:
            patience = deadline - time.monotonic()
            ready, _, _ = select.select([self._inlet], [], [], max(0.0, patience))
            data = os.read(self._inlet.fileno(), 1 << 20) if ready else b""
            if not data:
                self._end()
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: Json = json.loads(line)
        return message

    def _end(self) -> None:
        """At the end of its input it kills its workers, which are groups of their
        own; it is killed if it does not end by itself."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _log_tail(self) -> list[str]:
        text = (self.folder / "log").read_bytes().decode("utf-8", "replace")
        return text.splitlines()[-60:]
