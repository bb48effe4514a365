"""`make matrix`: the recipes on all 58 releases, as a table. Exit 1 on a failure.

The first columns are debug-logging's, the last two every recipe's.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import traceback
from multiprocessing import Pool
from pathlib import Path

import test_debugcode
import test_every_recipe as every
import test_releases as checks
from support import RELEASES

CHECKS = {
    "apply+strip": checks.test_applies_is_idempotent_and_strips_to_the_original,
    "sites": checks.test_which_sites_a_release_needs,
    "width": checks.test_no_marked_line_is_longer_than_a_formatter_allows,
    "golden": lambda release: [
        checks.test_golden_lines(release, layers) for layers in ("off", "all")
    ],
    "hand-written": lambda release: [
        test_debugcode.test_nothing_that_ships_is_touched(release),
        test_debugcode.test_lines_of_patchkit_are_not_touched(release),
    ],
    "libcst": checks.test_libcst_over_the_whole_file_gives_the_same,
    "round trip": lambda release: _in_a_folder(
        checks.test_round_trip_in_a_checkout_and_in_site_packages, release
    ),
    "every recipe": lambda release: [
        every.test_it_fits_is_idempotent_and_strips_to_the_original(name, release)
        for name in every.INFOS
    ],
    "its golden": lambda release: [
        every.test_golden(name, release) for name in every.INFOS
    ],
}


def _in_a_folder(check, release):
    with tempfile.TemporaryDirectory() as folder:
        check(release, Path(folder))


def row(release: str) -> tuple[str, dict[str, str]]:
    """What each check says of a release: nothing, or its traceback."""
    found = {}
    for name, check in CHECKS.items():
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                check(release)
                found[name] = ""
            except Exception:
                found[name] = traceback.format_exc()
    return release, found


def main() -> int:
    print(f"{'release':<14}" + "".join(f"{name:<13}" for name in CHECKS))
    failures = []
    with Pool(2) as pool:
        for release, found in pool.imap(row, RELEASES):
            cells = ("FAIL" if text else "ok" for text in found.values())
            print(f"{release:<14}" + "".join(f"{c:<13}" for c in cells), flush=True)
            failures += [(release, n, text) for n, text in found.items() if text]
    for release, name, text in failures:
        print(f"\n{release} {name}:\n{text}")
    total = len(RELEASES) * len(CHECKS)
    print(f"\n{total - len(failures)} of {total} checks ok, {len(RELEASES)} releases")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
