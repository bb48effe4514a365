"""How fast ``patchkit logs`` reads, in MB of log a second of one core, and its memory.

Logs are made of the recorded samples, with steps and numbers that go on, so that only
that repeats which repeats in a server's log: all taps, one line in ten a tap, hardly
any, and JSON lines. Next to it a loop over lines that only takes records apart, and
looks at nothing in them. Not a test: nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "fixtures" / "logs"
#: MB/s that a core should read.
AIM = 200
_NOISE = (
    b"[2026-01-01 00:00:00 TP0] Decode batch, #running-req: 12, #token: 8231, token"
    b" usage: 0.31, accept len: 2.71, cuda graph: True, gen throughput (token/s):"
    b" 812.31, #queue-req: 0\n"
)


def taps(file: str, seed: int) -> Iterator[bytes]:
    """The taps' lines of a sample over and over, with numbers of their own."""
    drawn = random.Random(seed)
    lines = [
        line
        for line in (SAMPLES / file).read_bytes().splitlines(keepends=True)
        if b"EAGLE3_DEBUG[" in line or line.startswith(b"{")
    ]
    parts = [re.split(rb"((?<=step=)\d+|(?<=\"step\": )\d+)", line) for line in lines]
    steps = max(int(part[1]) for part in parts)
    turn = 0
    while True:
        for head, step, rest in parts:
            digits = b"%04d" % drawn.randrange(10_000)
            rest = re.sub(rb"(mean\W+-?\d\.\d\d)\d*", rb"\g<1>" + digits, rest, count=1)
            yield head + b"%d" % (int(step) + turn * steps) + rest
        turn += 1


def write(file: Path, size: int, every: int, sample: str = "tp2.log") -> None:
    """``size`` bytes; every ``every``-th line is a tap's."""
    lines, written = taps(sample, 1), 0
    with open(file, "wb") as opened:
        while written < size:
            block = next(lines) + _NOISE * (every - 1)
            opened.write(block)
            written += len(block)


def timed(command: list[str], file: Path) -> tuple[float, float]:
    """Seconds of CPU of one process, and its memory in MB at most."""
    null = subprocess.DEVNULL
    process = subprocess.Popen([*command, str(file)], stdout=null, stderr=null)
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{command[0]} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    size = chosen.mb << 20
    loop = (
        "import sys, re, json\n"
        "word = re.compile(r'(\\w+)=(\\S+)')\n"
        "for line in open(sys.argv[1], errors='replace'):\n"
        "    if 'EAGLE3_DEBUG[' in line: dict(word.findall(line))\n"
        "    elif line[0] == '{': json.loads(line)\n"
    )
    ours = [sys.executable, "-m", "patchkit", "logs"]
    programs = {
        "patchkit logs": ours,
        "a loop over lines": [sys.executable, "-c", loop],
    }
    print(f"{chosen.mb} MB, best of {chosen.rounds}, {time.strftime('%Y-%m-%d')}")
    print(f"{'':<20}{'':<20}{'MB/s':>8}{'memory MB':>11}  aim {AIM} MB/s")
    with tempfile.TemporaryDirectory() as folder:
        logs = {
            "all lines taps": (1, "tp2.log"),
            "one line in 10": (10, "tp2.log"),
            "one line in 1000": (1000, "tp2.log"),
            "JSON lines": (1, "folder/taps-rank0-pid26089.jsonl"),
        }
        for name, (every, sample) in logs.items():
            file = Path(folder) / ("x.jsonl" if "JSON" in name else "x.log")
            write(file, size, every, sample)
            length = file.stat().st_size / 1e6
            for program, command in programs.items():
                runs = [timed(command, file) for _ in range(chosen.rounds)]
                seconds = min(one[0] for one in runs)
                memory = max(one[1] for one in runs)
                speed, verdict = length / seconds, ""
                if command is ours:
                    verdict = "met" if speed >= AIM else "MISSED"
                print(f"{name:<20}{program:<20}{speed:>8.0f}{memory:>11.0f}  {verdict}")


if __name__ == "__main__":
    main()
