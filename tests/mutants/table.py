"""`make mutants`: whether `patchkit verify` catches what is wrong. Exit 1 unless each
mutant of each release is caught.

    python tests/mutants/table.py [RELEASE …]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from mutation import DRAFT, LOGITS, TARGET
from scoring import MUTANTS, RELEASES, Outcome, Tree, score

#: What a row is about: the file, or the tap package.
ROWS = {TARGET: "deepseek_v2", DRAFT: "llama_eagle3", LOGITS: "logits_processor"}
TAP = "patchkit_tap"
FEWEST = 20


def row_of(path: str) -> str:
    return ROWS.get(path, TAP)


def main(releases: Sequence[str]) -> int:
    python = os.environ.get("PATCHKIT_PROBE_PYTHON", sys.executable)
    print(f"{'release':<9}{'file':<18}mutants  caught  by its check  not here")
    failed = False
    told: list[str] = []
    not_here: list[str] = []
    for release in releases:
        began = time.monotonic()
        outcomes = list(score(Tree(release), MUTANTS, python))
        for name in (*ROWS.values(), TAP):
            found = [one for one in outcomes if row_of(one.mutant.path) == name]
            known = [one for one in MUTANTS if row_of(one.path) == name]
            absent = {one.key: one.name for one in known}
            for one in found:
                del absent[one.mutant.key]
            caught = sum(one.caught for one in found)
            rightly = sum(one.rightly for one in found)
            print(
                f"{release:<9}{name:<18}{len(found):>7}{caught:>8}{rightly:>14}"
                f"{len(absent):>10}",
                flush=True,
            )
            failed |= rightly < len(found) or len(found) < FEWEST
            told += _missed(release, name, found)
            not_here += [f"not in {release} {name}: {one}" for one in absent.values()]
        print(f"{'':<9}{time.monotonic() - began:.0f} s", flush=True)
    print("\n".join(not_here))
    print("\n".join(told or ["each is caught, by the check that should"]))
    return 1 if failed else 0


def _missed(release: str, name: str, found: Sequence[Outcome]) -> list[str]:
    lines = []
    for one in found:
        what = f"{release} {name}: {one.mutant.name}"
        if not one.caught:
            lines.append(f"SURVIVED {what}: {', '.join(one.mutant.by)} passed")
        elif not one.rightly:
            by = "; ".join(f"{check}: {why}" for check, why in one.checks.items())
            lines.append(f"not by {', '.join(one.mutant.by)}: {what}: by {by[:200]}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or RELEASES))
