"""`make verify-matrix`: every check on every release, patched, as a table.

From 0.4.9 on, before which the probe has no bridge for how settings are read. Exit 1
unless every row passes.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from support import CACHE, RELEASES, run_patchkit

from patchkit.fetch import fetch_wheel
from patchkit.verify.checks import choose

SHORT = {"PASS": "+", "FAIL": "FAIL", "NOT APPLICABLE": "-", "CANNOT RUN": "can't"}


def verify(release: str, folder: Path) -> tuple[int, dict]:
    """Unpack, apply debug-logging with every tap, verify: exit code and report."""
    tree = folder / release
    with zipfile.ZipFile(fetch_wheel(release)) as wheel:
        wheel.extractall(tree)
    options = ("-O", "layers=all", "--target", tree)
    done = run_patchkit("apply", "debug-logging", *options)
    if done.returncode:
        return done.returncode, {"error": done.stderr}
    done = run_patchkit("verify", "--json", "--target", tree)
    shutil.rmtree(tree)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"error": done.stderr}


def main(releases: list[str]) -> int:
    names = choose([], [])
    print(f"{'':<14}" + "".join(f"{name[:9]:<10}" for name in names) + "seconds")
    failed = 0
    for release in releases:
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            code, report = verify(release, Path(folder))
        failed += code != 0
        if "checks" not in report:
            print(f"{release:<14}{report}", flush=True)
            continue
        cells = {
            one["name"]: SHORT[one["verdict"]] + "*" * bool(one["known_defects"])
            for one in report["checks"]
        }
        row = "".join(f"{cells[name]:<10}" for name in names)
        print(f"{release:<14}{row}{report['seconds']:.1f}", flush=True)
        for one in report["checks"]:
            if one["verdict"] in ("FAIL", "CANNOT RUN"):
                print(f"    {one['name']}: {one['reason']}", flush=True)
    print("+ PASS   - NOT APPLICABLE   * with a known defect of the stock release")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(RELEASES[RELEASES.index("0.4.9") :])))
