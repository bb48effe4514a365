"""`make pairs`: every two recipes on every sampled release. Exit 1 on a failure."""

from __future__ import annotations

import sys
import tempfile
from itertools import combinations
from multiprocessing import Pool
from pathlib import Path

import composing
from support import SAMPLE

from patchkit.errors import Refused


def row(release: str) -> tuple[str, int, int, list[str]]:
    """How many pairs went well, how many exclude each other, and what went wrong."""
    composing.remember_engine()
    names = list(composing.recipes())
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = composing.Tree(release, Path(folder, "tree"))
        alone = {"": tree.files()}
        for name in names:
            try:
                tree.apply([name])
            except Refused as problem:
                wrong.append(f"{name}: {problem.message} {problem.details}")
                continue
            alone[name] = tree.files()
            tree.revert([])
        done = excluded = 0
        for one, other in combinations(alone.keys() - {""}, 2):
            excluded += composing.exclude_each_other(one, other)
            try:
                problem = composing.check_pair(tree, *sorted((one, other)), alone)
            except Refused as refused:
                problem = f"refused: {refused.message} {refused.details}"
            if problem:
                wrong.append(f"{one} + {other}: {problem}")
                tree = composing.Tree(release, Path(folder, f"tree{len(wrong)}"))
            done += 1
    return release, done, excluded, wrong


def main() -> int:
    print(f"{'release':<14}{'pairs':>7}{'exclude each other':>20}{'wrong':>7}")
    total, failures = 0, []
    with Pool(2) as pool:
        for release, done, excluded, wrong in pool.imap(row, sys.argv[1:] or SAMPLE):
            print(f"{release:<14}{done:>7}{excluded:>20}{len(wrong):>7}", flush=True)
            failures += [f"{release} {one}" for one in wrong]
            total += done
    for one in failures:
        print(one)
    print(f"\n{total - len(failures)} of {total} pairs ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
