"""`make pairs`, second part: every two recipes together, run by `patchkit verify`.

What each promises must hold with the other applied; nothing else may change.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import composing
from support import release_tree

from patchkit.errors import Refused
from patchkit.registry import Registry
from patchkit.verify.promises import Promises, find_promises
from patchkit.verify.trees import CORE
from patchkit.verify.trials import Trials
from patchkit.verify.verdict import Verdict
from patchkit.workspace.tree import Workspace

RELEASES = ("0.5.5", "0.5.9", "0.5.15", "0.5.23")
CHECKS = (
    *("import", "weights", "capture", "draft", "decode", "golden", "fusion"),
    *("capture-order", "kimi-wrapper", "unsorted-ids", "embedding-ids"),
    *("width-guard", "weight-guard", "capture-switch", "capture-removed"),
    *("gate-off", "gate-on"),
)
PYTHON = os.environ.get("PATCHKIT_PROBE_PYTHON", sys.executable)


def promised(tree: composing.Tree) -> Promises:
    workspace = Workspace(tree.package, Registry())
    with workspace.reading(dry=True):
        return find_promises(workspace)


def sets(tree: composing.Tree) -> dict[str, tuple[dict[str, bytes], Promises]]:
    """One recipe, and every two that don't exclude each other: files and promises."""
    found = {}
    names = list(composing.recipes())
    for some in [(name,) for name in names] + list(combinations(names, 2)):
        if len(some) == 2 and composing.exclude_each_other(*some):
            continue
        tree.apply(some)
        if len(tree.applied()) == len(some):  # else one is not needed here
            found[" + ".join(some)] = tree.files(), promised(tree)
        tree.revert([])
    return found


def wrong(release: str) -> tuple[int, list[str]]:
    package = release_tree(release) / "sglang"
    with tempfile.TemporaryDirectory() as folder:
        tree = composing.Tree(release, Path(folder, "tree"))
        # the package's own __init__ is no file that a worker can take anew
        stock = {k: v for k, v in tree.files().items() if k.startswith("srt/")}
        wanted = sets(tree)
    changed = {
        name: {
            path: data
            for path, data in files.items()
            if path.startswith("srt/") and stock.get(path) != data
        }
        for name, (files, _) in wanted.items()
    }
    deferred = {path for files in changed.values() for path in files}
    # what no recipe changes here may need what is not installed
    stock = {k: v for k, v in stock.items() if k in deferred or k in CORE}
    failures = []
    promises = {name: found for name, (_, found) in wanted.items()}
    with Trials(PYTHON, package, stock, deferred=deferred) as trials:
        for name in changed:  # one at a time, so that it is heard from
            for _, checks in trials.judge({name: changed[name]}, CHECKS, promises):
                failures += [
                    f"{release} {name}: {one.name}: {one.verdict.value}: {one.reason}"
                    for one in checks.values()
                    if one.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
                ]
    return len(changed), failures


def main() -> int:
    composing.remember_engine()
    failures: list[str] = []
    total = 0
    print(f"{'release':<14}{'sets':>6}{'wrong':>7}{'seconds':>9}")
    for release in sys.argv[1:] or RELEASES:
        began = time.monotonic()
        try:
            count, found = wrong(release)
        except Refused as problem:
            count, found = 0, [f"{release}: {problem.message} {problem.details}"]
        seconds = time.monotonic() - began
        print(f"{release:<14}{count:>6}{len(found):>7}{seconds:>9.0f}", flush=True)
        failures += found
        total += count
    print(*failures, sep="\n")
    print(f"\n{total} sets run by verify; {len(failures)} checks failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
