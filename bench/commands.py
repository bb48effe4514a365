"""Whole-process times of the commands, side by side with what else one could run.

Medians over N rounds, interleaved so that a noisy machine hits all alike. Prints
ratios against the yardstick named in each row. Not a test: nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("PATCHKIT_CACHE", str(ROOT / ".cache"))
sys.path.insert(0, str(ROOT / "tests"))

from support import make_checkout, stock  # noqa: E402

PYTHON = sys.executable
PATCHKIT = str(Path(PYTHON).parent / "patchkit")
FILES = (
    "srt/models/deepseek_v2.py",
    "srt/layers/logits_processor.py",
    "srt/models/llama_eagle3.py",
)


def timed(command: list[str], cwd: Path) -> float:
    """Seconds of one whole process. Raises CalledProcessError if it fails."""
    begin = time.perf_counter()
    subprocess.run(
        command,
        cwd=cwd,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - begin


class Trees:
    """Fresh stock and patched checkouts of one release."""

    def __init__(self, release: str, folder: Path):
        self.folder = folder
        self.stock = make_checkout(stock(release), folder / "stock")
        self.patched = folder / "patched"
        shutil.copytree(self.stock, self.patched)
        timed([PATCHKIT, "apply", "debug-logging", "--target", "."], self.patched)
        self.diff = folder / "debug-logging.patch"
        timed([PATCHKIT, "export", "-o", str(self.diff), "--target", "."], self.patched)

    def fresh(self, source: Path) -> Path:
        copy = self.folder / "fresh"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        return copy


def rows(trees: Trees) -> dict[str, Callable[[], float]]:
    """What is timed: name -> one run, each on a fresh tree where it writes."""
    here = trees.folder

    def on(source: Path, *command: str) -> Callable[[], float]:
        return lambda: timed(list(command), trees.fresh(source))

    codemod = [PYTHON, "-m", "libcst.tool", "codemod", "--no-format", "-x"]
    codemod += ["patchkit.recipes.debug_logging.DebugLogging"]
    codemod += [f"python/sglang/{path}" for path in FILES]
    target = ("--target", ".")
    return {
        "python -c 'import click'": lambda: timed([PYTHON, "-c", "import click"], here),
        "python -c 'import libcst.codemod'": lambda: timed(
            [PYTHON, "-c", "import libcst.codemod"], here
        ),
        "patchkit --help": lambda: timed([PATCHKIT, "--help"], here),
        "patchkit status": lambda: timed([PATCHKIT, "status", *target], trees.patched),
        "patchkit apply (no-op)": lambda: timed(
            [PATCHKIT, "apply", "debug-logging", *target], trees.patched
        ),
        "patchkit apply (first)": on(
            trees.stock, PATCHKIT, "apply", "debug-logging", *target
        ),
        "patchkit revert": on(trees.patched, PATCHKIT, "revert", *target),
        "git apply": on(trees.stock, "git", "apply", str(trees.diff)),
        "libcst.tool codemod": on(trees.stock, *codemod),
    }


#: row -> (yardstick: another row or seconds, at most this many of it)
GOALS: dict[str, tuple[str | float, float]] = {
    "patchkit --help": ("python -c 'import click'", 2),
    "patchkit status": (0.3, 1),
    "patchkit apply (no-op)": (0.3, 1),
    "patchkit revert": (0.3, 1),
    "patchkit apply (first)": ("python -c 'import libcst.codemod'", 2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", default="0.5.23")
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        timings: dict[str, list[float]] = {}
        runs = rows(Trees(chosen.release, Path(folder)))
        for _ in range(chosen.rounds):
            for name, once in runs.items():
                timings.setdefault(name, []).append(once())
    medians = {name: statistics.median(found) for name, found in timings.items()}
    print(
        f"SGLang {chosen.release}, {chosen.rounds} rounds, medians of whole processes"
    )
    print(f"{'':<36}{'median':>9}{'fastest':>9}  goal")
    for name, median in medians.items():
        goal = ""
        if name in GOALS:
            yardstick, most = GOALS[name]
            unit = medians[yardstick] if isinstance(yardstick, str) else yardstick
            what = yardstick if isinstance(yardstick, str) else f"{yardstick} s"
            verdict = "met" if median <= most * unit else "MISSED"
            goal = f"{median / unit:.2f} x {what} (at most {most}): {verdict}"
        print(f"{name:<36}{median:>8.3f}s{min(timings[name]):>8.3f}s  {goal}")


if __name__ == "__main__":
    main()
