"""One Engine, from its start to its end: what it generated, and how."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from patchkit.verify import scratch
from patchkit.verify.jobs import Job
from patchkit.verify.probe.engine import PREFIX
from patchkit.verify.probe.engine.failure import read_failure
from patchkit.verify.probe.engine.memory import name_memory
from patchkit.verify.probe.engine.mends import Mends, mend_torch
from patchkit.verify.probe.engine.processes import EngineEnded, Processes
from patchkit.verify.probe.engine.request import Generate, Request
from patchkit.verify.probe.engine.steps import Steps
from patchkit.verify.probe.fusion import Fusion
from patchkit.verify.probe.imports import Imports
from patchkit.verify.probe.recorder import Recorder, TapLines

#: A socket's path may have 107 characters, and its file's name takes some.
_LONG = 80


class Scene:
    """Sets a worker up for an engine, and runs a job's request.

    ``folder`` is the worker's own. Made before the overlaid modules are imported.
    """

    def __init__(
        self, job: Job, folder: Path, imports: Imports, recorder: Recorder
    ) -> None:
        self.job = job
        self.recorder = recorder
        self.request = Request.read(Path(job.scenario.removeprefix(PREFIX)))
        folder = folder / "engine"
        folder.mkdir()
        self._keep_files(Path(imports.request["folder"]).parent)
        os.environ.update(self._variables())
        self.steps = Steps(folder, imports.ledger)
        self.lines = TapLines(folder)
        self.processes = Processes(imports.ledger)
        mend_torch(imports.ledger)
        mends = Mends(
            imports.ledger,
            self.steps.saw,
            {"kill_process_tree": self.processes.kill_process_tree},
            self.steps.handed,
        )
        mends.already()
        imports.when_loaded(mends.loaded)

    @staticmethod
    def _keep_files(session: Path) -> None:
        """Engine leaves the files of its sockets behind, and shared memory where it is
        killed: in the session's folder, which is removed, or named after it."""
        where = session / "sockets"
        if len(str(where)) >= _LONG:
            where = scratch.sockets(session)
        where.mkdir(mode=0o700, exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(where)
        if scratch.MEMORY.is_dir():
            name_memory(session.name)

    def _variables(self) -> dict[str, str]:
        # Without cores of its own for each rank, SGLang looks for as many NUMA nodes.
        cores = [
            str(number % (os.cpu_count() or 1)) for number in range(self.request.tp)
        ]
        bound = {"SGLANG_CPU_OMP_THREADS_BIND": "|".join(cores)} if cores[1:] else {}
        return {"TRANSFORMERS_OFFLINE": "1", **bound}

    def run(self) -> None:
        """Facts: a call for each ``Generate``, with ``outputs`` and ``ranks``, the
        lines that each rank's ``Steps`` wrote. Raises EngineFailed."""
        with self.recorder.step("import the engine"):
            from sglang.srt.entrypoints.engine import Engine
        more = self._fuse() if self.job.fusion else {}
        self.processes.prepare()
        try:
            with self.recorder.step("start the engine"):
                engine = Engine(**self.request.engine(), **more)
            for one in self.request.generate:
                with self.recorder.call(one.name) as entry:
                    self._generate(engine, one, entry)
        except EngineEnded as ended:
            log = Path(self.recorder.printed.file).read_text("utf-8", "replace")
            raise read_failure(str(ended), log) from None
        finally:
            self.processes.end()

    def _fuse(self) -> dict[str, Any]:
        """What Engine is to be told."""
        self.steps.fusion, wanted = Fusion(), SimpleNamespace()
        self.steps.fusion.switch_on(wanted)
        self.recorder.facts["fusion_available"] = self.steps.fusion.available
        return vars(wanted)

    def _generate(self, engine: Any, one: Generate, entry: dict[str, Any]) -> None:
        sampling = {"temperature": 0, "max_new_tokens": one.tokens}
        found = engine.generate(input_ids=one.prompts, sampling_params=sampling)
        entry["outputs"] = [
            {"ids": each["output_ids"], "meta": _plain(each["meta_info"])}
            for each in found
        ]
        entry["ranks"] = self.lines.by_file()


def _plain(meta: dict[str, Any]) -> dict[str, Any]:
    """What says how speculation went; the rest may be of any type."""
    kept = (int, float, list)
    return {
        name: value
        for name, value in meta.items()
        if name.startswith(("spec_", "completion_", "prompt_"))
        and isinstance(value, kept)
    }
