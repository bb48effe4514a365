"""`make engine-matrix`: SGLang's own engine with the canary pair, on every release.

From 0.5.5 on, each as it is on PyPI. A cell is the accept length (4 is right) and +,
or what went otherwise. ``v2``: the overlapping EAGLE worker, where it is a choice;
``pages``: KV pages of 16 tokens.
Exit 1 unless each release runs and is as its defects are known.
"""

from __future__ import annotations

import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import CACHE, RELEASES

from patchkit.canary.diagnose import diagnose
from patchkit.fetch import fetch_wheel
from patchkit.verify import pair
from patchkit.verify.answers import measured
from patchkit.verify.defects import is_known
from patchkit.verify.engine_requests import write_requests
from patchkit.verify.interpreter import choose_python
from patchkit.verify.jobs import Job, Result, module_name
from patchkit.verify.session import ProbeFailed, Session
from patchkit.verify.trees import CORE, write_overlay

#: Where there are both, the second is taken if this is set.
WORKERS = ("eagle_worker.py", "eagle_worker_v2.py")
SWITCH = "SGLANG_ENABLE_SPEC_V2"
Variants = Mapping[str, pair.Variant]
VARIANTS: Variants = {
    **pair.VARIANTS,
    "v2": pair.Variant(),
    "pages": pair.Variant(arguments={"page_size": 16}),
}
DEFECTS = {
    "engine-fusion": "capture-before-all-reduce",
    "engine-steps": "draft-positions",
}


def make_jobs(package: Path, folder: Path, variants: Variants) -> list[Job]:
    stock = {path: (package / path).read_bytes() for path in CORE}
    overlay = write_overlay(stock, folder / "overlay")
    scenarios = write_requests(folder, variants)
    both = all((package / "srt/speculative" / one).exists() for one in WORKERS)
    return [
        Job(
            name,
            overlay,
            scenario=scenarios[name],
            fusion=name == "engine-fusion",
            environment={SWITCH: "1"} if name == "v2" else {},
        )
        for name in variants
        if name != "v2" or both
    ]


def run(
    release: str, folder: Path, variants: Variants = VARIANTS
) -> tuple[dict[str, Result], float]:
    """The results by job, and how long it took. Raises ProbeFailed."""
    tree = folder / "tree"
    with zipfile.ZipFile(fetch_wheel(release)) as wheel:
        wheel.extractall(tree)
    package = tree / "sglang"
    jobs = make_jobs(package, folder, variants)
    python, _ = choose_python(package, None)
    began = time.perf_counter()
    with Session(
        python,
        package,
        [module_name(path) for path in CORE],
        engine=True,
        timeout=240,
        start_timeout=240,
    ) as session:
        results = {one.job: one for one in session.run(jobs)}
    return results, time.perf_counter() - began


def cell(release: str, name: str, result: Result) -> tuple[str, str]:
    """What the table shows, and what is wrong; "" if nothing is."""
    if not result.ran:
        return "can't", f"{result.status} in {result.step}: {result.error}"
    variant = VARIANTS[name]
    errors = [one["error"] for one in result.facts["calls"] if one["error"]]
    if errors:
        return "can't", errors[0]
    found = measured(result, variant)
    verdict = diagnose(found)
    if name == "engine-fusion" and not result.facts["fusion_available"]:
        return "-", ""
    states = found.states
    if states is None or states.skipped:
        return f"{found.mean:.2f}", "the states that the draft is handed were not seen"
    if name in DEFECTS and is_known(DEFECTS[name], release):
        met = not verdict.right and not verdict.text.startswith("the target")
        met = met and (states.partial if name == "engine-fusion" else states.right)
        return f"{found.mean:.2f}*", "" if met else "the known defect is not met"
    if verdict.right:
        return f"{found.mean:.2f}+", ""
    return f"{found.mean:.2f}", verdict.text


def row(release: str, results: Mapping[str, Result]) -> tuple[list[str], list[str]]:
    cells, wrong = [], []
    for name in VARIANTS:
        if name not in results:
            cells.append("-")
            continue
        text, why = cell(release, name, results[name])
        cells.append(text)
        if why:
            wrong.append(f"{name}: {why}")
    return cells, wrong


def main(releases: list[str]) -> int:
    print(
        f"{'':<14}"
        + "".join(f"{name.removeprefix('engine-'):<11}" for name in VARIANTS)
        + "seconds",
        flush=True,
    )
    failed = 0
    for release in releases:
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            try:
                results, seconds = run(release, Path(folder))
            except ProbeFailed as problem:
                print(f"{release:<14}can't: {problem}", flush=True)
                failed += 1
                continue
        cells, wrong = row(release, results)
        failed += bool(wrong)
        shown = "".join(f"{one:<11}" for one in cells)
        print(f"{release:<14}{shown}{seconds:.1f}", flush=True)
        for one in wrong:
            print(f"    {one}", flush=True)
    print("+ right   - no such thing   * as a known defect of the stock release has it")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(RELEASES[RELEASES.index("0.5.5") :])))
