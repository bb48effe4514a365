"""One rank of one job, in a process of its own: overlay, import, run, report."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

import torch

from patchkit.verify.jobs import FORWARD, IMPORT, MODULES, Job, Result
from patchkit.verify.probe import device, drafts, engine, fresh
from patchkit.verify.probe.engine.failure import EngineFailed
from patchkit.verify.probe.engine.scenario import Scene
from patchkit.verify.probe.imports import Imports
from patchkit.verify.probe.overlay import OverlayFinder
from patchkit.verify.probe.recorder import Recorder, told
from patchkit.verify.probe.rig import Rig
from patchkit.verify.probe.runtime import Rank
from patchkit.verify.probe.scenario import Scenario
from patchkit.verify.probe.watch import HostReads, Printed

#: A hung worker is asked for its stacks by this signal, then killed.
STACKS = signal.SIGUSR1


def forked(job: Job, rank: int, folder: Path, imports: Imports, kept: int) -> NoReturn:
    """Run in this fork of the zygote or, where CUDA does not work in one, in a fresh
    process in its place, which keeps file descriptor ``kept`` open."""
    try:
        _redirect(folder / f"{rank}.log")
        why = imports.request["fresh"] or device.why_not(imports.device, rank)
        if why:
            request = {**imports.request, "fresh": why}
            fresh.become(request, job, rank, folder, kept)
        run(job, rank, folder, imports)
    finally:  # never back into the zygote's own code
        os._exit(1)


def run(job: Job, rank: int, folder: Path, imports: Imports) -> NoReturn:
    """Standard output and error go to ``folder/rank.log`` already. The report is
    ``folder/rank.json``, complete or not there."""
    began = time.perf_counter()
    with open(folder / f"{rank}.stacks", "w") as stacks:
        faulthandler.register(STACKS, file=stacks, all_threads=True)
        code = 1
        try:
            faulthandler.enable(file=stacks)
            result = _report(job, rank, folder, imports)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            value = result.to_json()
            value["seconds"] = round(time.perf_counter() - began, 3)
            value["peak_mb"] = peak // (
                1024 * 1024 if sys.platform == "darwin" else 1024
            )
            part = folder / f"{rank}.part"
            part.write_text(json.dumps(value), encoding="utf-8")
            part.replace(folder / f"{rank}.json")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Tearing torch and its process groups down takes a second and can hang.
            os._exit(code)


def _redirect(log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _report(job: Job, rank: int, folder: Path, imports: Imports) -> Result:
    ledger, log = imports.ledger, folder / f"{rank}.log"
    os.environ.update(job.environment)
    taps = folder / f"taps-{rank}"
    os.environ["EAGLE3_DEBUG_DIR"] = str(taps)
    reads = HostReads({*MODULES.values(), *job.overlay})
    step_file = folder / f"{rank}.step"
    recorder = Recorder(
        *(ledger, reads, Printed(str(log)), taps, step_file),
        device.flush_tap if imports.device.kind == "cuda" else lambda: None,
    )
    facts, error, trace, status = recorder.facts, "", [], "ran"
    facts["fresh"] = "" if imports.done else imports.request["fresh"]
    try:
        if not imports.done:
            imports.say = recorder.begin
            imports.run()
        with recorder.step("device"):
            where = _place(job, rank, folder, imports)
        scene = None
        if job.scenario.startswith(engine.PREFIX):
            scene = Scene(job, folder, imports, recorder)
        with recorder.step(IMPORT):
            _import(job, imports.finder, facts)
        facts["imported"] = recorder.printed.take()
        torch.manual_seed(0)
        reads.install()
        dtype: torch.dtype = getattr(torch, job.dtype)
        if scene is not None:
            scene.run()
        elif job.scenario.startswith(drafts.PREFIX):
            drafts.run_requests(job.scenario, where, recorder)
        else:
            step, draft = recorder.step, job.draft
            rig = Rig(dtype, where, ledger, step, has_draft=draft)
            _run_models(job, rig, recorder)
    except device.NoDevice as reason:
        status, error = "refused", str(reason)
    except EngineFailed as problem:
        status, error, trace = "failed", str(problem), problem.trace
        facts["raised_in"] = problem.raised_in
    except Exception as problem:
        status = "failed"
        error = told(problem)
        trace = traceback.format_exc().splitlines()[-30:]
        facts["raised_in"] = _innermost(problem)
    facts["standins_called"] = [
        one for one in ledger.called if one["phase"].startswith(FORWARD)
    ]
    facts["shims"] = ledger.shims
    return Result(
        job=job.name,
        rank=rank,
        status=status,
        step=ledger.phase,
        error=error,
        trace=tuple(trace),
        facts=facts,
        tensors=recorder.tensors,
    )


def _run_models(job: Job, rig: Rig, recorder: Recorder) -> None:
    facts = recorder.facts
    rig.set_up(fusion=job.fusion)
    gc.freeze()
    Scenario(rig, recorder).run(job.scenario)
    facts["weights"] = {
        which: {"unwritten": one.unwritten, "dropped": one.dropped}
        for which, one in rig.loaded.items()
    }
    hot = getattr(rig.draft, "hot_token_id", None) if rig.has_draft else None
    facts["hot_tokens"] = None if hot is None else hot.tolist()
    facts["fused_calls"] = rig.fusion.calls
    facts["fusion_available"] = rig.fusion.available
    facts["observations"] = rig.oracle.observations


def _place(job: Job, rank: int, folder: Path, imports: Imports) -> Rank:
    device.note_chance(imports.ledger)
    return Rank(
        str(folder / "rendezvous"),
        rank,
        job.ranks,
        device=device.attach(imports.device, rank),
        backend=imports.device.backend(job.ranks),
        kernels=imports.device.kernels,
    )


def _import(job: Job, finder: OverlayFinder, facts: dict[str, Any]) -> None:
    finder.files = job.overlay
    wanted = [name for name, file in job.overlay.items() if file is not None]
    files = {}
    needed = frozenset(MODULES.values())
    facts["not_here"] = {}
    for name in dict.fromkeys([*MODULES.values(), *wanted]):
        try:
            files[name] = str(importlib.import_module(name).__file__)
        except ImportError as error:
            # an EAGLE worker, say: something of SGLang's below it is for GPUs only
            raised = [one for one in _innermost(error) if not one.startswith("<")]
            if name in needed or {*raised[:1]} & {*job.overlay.values()}:
                raise
            facts["not_here"][name] = told(error)
            continue
        expected = job.overlay.get(name)
        if expected is not None and files[name] != expected:
            raise ImportError(f"{name} came from {files[name]}, not from {expected}")
    facts["files"] = files
    facts["tap"] = any(".patchkit_tap" in name for name in sys.modules)


def _innermost(error: BaseException) -> list[str]:
    """Files of the traceback, innermost first, and of a syntax error."""
    found = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        found.append(error.filename)
    return found[::-1]
