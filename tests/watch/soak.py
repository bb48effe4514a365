"""No false alarm under load: a server is started again and again beside one busy loop a
core; each time it must get READY. ``soak.py [RUNS]``, 20 by default; prints a table.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from serverkit import PYTHON, Server, watching  # noqa: E402

BUSY = "while True: pass"
STALL = "10"


def main(runs: int) -> int:
    if not PYTHON:
        print("no PATCHKIT_SERVER_PYTHON: make watch-soak does it all")
        return 2
    command = [sys.executable, "-c", BUSY]
    loops = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    wrong = 0
    try:
        for number in range(1, runs + 1):
            release = ("0.5.9", "0.5.23")[number % 2]
            ranks = 1 + number // 2 % 2
            began = time.monotonic()
            options = ("--until", "ready", "--stall", STALL, "--timeout", "15m")
            with watching(Server(release, ranks=ranks), *options) as one:
                verdict = one.verdict()
            took = time.monotonic() - began
            wrong += verdict["verdict"] != "READY"
            load = os.getloadavg()[0]
            print(
                f"{number:3} {release:7} tp={ranks} {verdict['verdict']:9}"
                f" {took:6.0f} s  load {load:.1f}  {verdict['says']}",
                flush=True,
            )
    finally:
        for one in loops:
            one.kill()
            one.wait()
    print(f"{runs - wrong} of {runs} READY with --stall {STALL}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
