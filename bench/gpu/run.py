"""Build, check and time the taps on a GPU, in one call:

    python bench/gpu/run.py [--out FOLDER] [--only NAME,...] [--widths N,...]

Needs torch, triton and an NVIDIA GPU; nothing of SGLang. ``modules.py`` runs SGLang's
own modules. Exit code 1 if a check failed; numbers go to FOLDER/gpu.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from pathlib import Path

import arriving
import correct
import cost
import torch
import triton
from kit import FAILED, check, log


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--only", default="")
    parser.add_argument("--widths", default=",".join(map(str, correct.WIDTHS)))
    options = parser.parse_args()
    properties = torch.cuda.get_device_properties(0)
    numbers: dict[str, object] = {
        "card": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
    }
    log(numbers)
    sections = {
        "bandwidth": cost.bandwidth,
        "statistics": lambda: correct.statistics(
            [int(width) for width in options.widths.split(",")]
        ),
        "unprepared": correct.unprepared,
        "saves": correct.saves,
        "portable": correct.portable,
        "replays": lambda: arriving.replays(10_000),
        "compiled": arriving.compiled,
        "node": cost.node,
        "stand_in": cost.stand_in,
    }
    for name, section in sections.items():
        if options.only and name not in options.only.split(","):
            continue
        log("----", name)
        try:
            numbers[name] = section()
        except Exception:
            check(name, False, traceback.format_exc())
        torch.cuda.empty_cache()
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "gpu.json").write_text(json.dumps(numbers, indent=1))
    _tables(numbers)
    log("failed:", FAILED or "none")
    return 1 if FAILED else 0


def _tables(numbers: dict[str, object]) -> None:
    per_us = numbers.get("bandwidth")
    table = numbers.get("node")
    if isinstance(table, dict) and isinstance(per_us, float):
        rows = sorted({row for line in table.values() for row in line})
        log(f"copy bandwidth {per_us / 1e6:.2f} TB/s; us per node, hot | flushed")
        print(f"{'rows':44s}" + "".join(f"{row:>14d}" for row in rows))
        floor = [row * cost.HIDDEN * 2 / per_us for row in rows]
        print(f"{'floor':44s}" + "".join(f"{one:14.2f}" for one in floor))
        for name, line in table.items():
            cells = [
                "{:6.2f} |{:6.2f}".format(*line[row]) if row in line else ""
                for row in rows
            ]
            print(f"{name:44s}" + "".join(f"{cell:>14s}" for cell in cells))
    table = numbers.get("stand_in")
    if isinstance(table, dict):
        for size, line in table.items():
            stock = line["stock"]
            words = [f"{k} {v:.1f} ({v / stock:.4f})" for k, v in line.items()]
            print(f"batch {size:4d}: " + " | ".join(words))


if __name__ == "__main__":
    sys.exit(main())
