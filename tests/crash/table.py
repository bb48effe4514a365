"""The kill-point table: ``python -m tests.crash`` (that is ``make crash``).

Exit status 1 if any trial failed. ``--worker`` is what it starts, under the shim.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).resolve().parent)]

from harness import Box, CannotBuild, build_shim, preload  # noqa: E402
from scenarios import SCENARIOS, prepare  # noqa: E402
from trial import Trial  # noqa: E402

Job = dict[str, Any]
ALL = ("kill", "repair", "full")


def jobs(scenario: str = "", layout: str = "", **rest: Any) -> list[Job]:
    return [
        {"scenario": one.name, "layout": where, **rest}
        for one in SCENARIOS
        for where in one.layouts
        if scenario in ("", one.name) and layout in ("", where)
    ]


def do(job: Job, box: Box) -> list[Job]:
    """One scenario in one layout: all its trials."""
    (scenario,) = (one for one in SCENARIOS if one.name == job["scenario"])
    stage = prepare(box, scenario, job["layout"])
    gc.freeze()  # or each fork copies what the collector touches
    trial = Trial(stage, job.get("every", 1), job.get("start", 1))
    trials = job.get("trials", ALL)
    rows = []
    row, pending = trial.kill()
    rows.append(row)
    if "repair" in trials and scenario.thorough:
        rows += [trial.repair(pending), trial.edit(pending)]
    if "full" in trials and scenario.thorough:
        rows.append(trial.full())
    return [row.as_json() for row in rows]


def work(folder: Path) -> None:
    """Jobs from stdin, rows to stdout, one JSON line each."""
    preload()
    for line in sys.stdin:
        job = json.loads(line)
        if job.get("sabotage"):
            import sabotage

            sabotage.commit(job["sabotage"])
        rows = do(job, Box(folder, real=job.get("real", False)))
        print(json.dumps(rows), flush=True)


def run_jobs(todo: list[Job], processes: int = 2) -> list[Job]:
    """The rows of all jobs. Raises CannotBuild."""
    shim = build_shim(ROOT / ".cache" / "crash")
    queue: SimpleQueue[tuple[int, Job]] = SimpleQueue()
    for item in enumerate(todo):
        queue.put(item)
    results: dict[int, list[Job]] = {}

    def serve() -> None:
        # kills are tried here, not power loss: memory is as good as a disk
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        made = tempfile.mkdtemp(prefix="patchkit-crash-", dir=memory)
        folder = Path(made).resolve()
        environment = os.environ | {
            "LD_PRELOAD": str(shim),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        environment.pop("SGLANG_DIR", None)
        worker = subprocess.Popen(
            [sys.executable, __file__, "--worker", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert worker.stdin is not None and worker.stdout is not None
        try:
            while True:
                try:
                    number, job = queue.get_nowait()
                except Empty:
                    return
                print(json.dumps(job), file=worker.stdin, flush=True)
                answer = worker.stdout.readline()
                if not answer:
                    raise RuntimeError(f"the worker ended during {job}")
                results[number] = json.loads(answer)
        finally:
            worker.stdin.close()
            worker.wait()
            shutil.rmtree(folder, ignore_errors=True)

    with ThreadPoolExecutor(processes) as pool:
        for one in [pool.submit(serve) for _ in range(processes)]:
            one.result()
    return [row for number in sorted(results) for row in results[number]]


def table(rows: list[Job]) -> str:
    heads = ("points", "finished", "undone", "failures")
    lines = [f"{'scenario':16} {'layout':14} {'trial':16}" + " ".join(heads)]
    total = dict.fromkeys(heads, 0)
    for row in rows:
        numbers = {**row, "failures": len(row["failures"])}
        cells = " ".join(f"{numbers[head]:>{len(head)}}" for head in heads)
        lines.append(
            f"{row['scenario']:16} {row['layout']:14} {row['trial']:16}{cells}"
        )
        for head in heads:
            total[head] += numbers[head]
    cells = " ".join(f"{total[head]:>{len(head)}}" for head in heads)
    lines.append(f"{'total':48}{cells}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="")
    parser.add_argument("--layout", default="")
    parser.add_argument("--every", type=int, default=1, help="only each n-th point")
    parser.add_argument("--sabotage", help="break patchkit on purpose (sabotage.py)")
    parser.add_argument("--real", action="store_true", help="start python each time")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        work(chosen.worker)
        return 0
    todo = jobs(
        chosen.scenario,
        chosen.layout,
        every=chosen.every,
        sabotage=chosen.sabotage,
        real=chosen.real,
    )
    try:
        rows = run_jobs(todo)
    except CannotBuild as problem:
        print(problem, file=sys.stderr)
        return 1
    print(table(rows))
    failures = [
        f"{row['scenario']}, {row['layout']}, {row['trial']}: {one}"
        for row in rows
        for one in row["failures"]
    ]
    print("\n".join(failures[:20]), file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
