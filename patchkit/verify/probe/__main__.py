"""``python -m patchkit.verify.probe --target DIR``: run one tree's real modules.

Exit code 0: PASS; 1: FAIL, the modules ran and something is wrong; 4: CANNOT RUN.
The digest goes to stdout, SGLang's own log and the ``EAGLE3_DEBUG`` lines of a
patched tree to stderr.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

EXIT_CODES = {"PASS": 0, "FAIL": 1, "CANNOT RUN": 4}


def main(arguments: list[str] | None = None) -> int:
    started = time.time()
    options = _parser().parse_args(arguments)
    faulthandler.enable()

    from patchkit.verify.probe import environment
    from patchkit.verify.probe.run import Probe

    environment.prepare()
    report = Probe(options.target.resolve(), options.dtype, started).run()
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for line in summary(report):
        print(line)
    for problem in report["problems"]:
        print(f"{report['verdict']}: {problem}", file=sys.stderr)
    return EXIT_CODES[report["verdict"]]


def summary(report: dict[str, Any]) -> list[str]:
    """What a person wants to see first; the JSON has the rest."""
    head = f"sglang {report.get('sglang', '?')} {report['dtype']}: {report['verdict']}"
    lines = [f"{head} in {report['timings']['total']:.1f} s"]
    capture = report.get("capture")
    if capture and not capture["available"]:
        lines.append("no capture in this tree: the draft got the oracle's states")
    if report["digest"]:
        pairs = report["digest"].items()
        lines.append("digest " + " ".join(f"{k}={v:.6f}" for k, v in pairs))
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m patchkit.verify.probe", description=__doc__
    )
    parser.add_argument(
        "--target",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder that contains sglang/",
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the whole report to FILE"
    )
    return parser


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Tearing torch and its process groups down takes a second and can hang.
    os._exit(code)
