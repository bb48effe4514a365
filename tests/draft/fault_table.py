"""``make drafts``: every planted fault under many releases, and what a run does.

    python tests/draft/fault_table.py [RELEASE...]

A column a release: what ``expected.txt`` says of it, else what was found. ``!`` marks
what differs from the file, and what a run did not bear out; either is exit code 1.
Without a release: all from 0.4.9 on, which take an hour.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parent)]

import draftkit  # noqa: E402
import expectations  # noqa: E402
from faults import FAULTS  # noqa: E402
from support import RELEASES  # noqa: E402

FIRST = "0.4.9"
#: Said of every draft of the fixtures: its RoPE is not the target's.
ALWAYS = "rope-scaling"


def main(releases: list[str]) -> int:
    wanted = releases or list(RELEASES[RELEASES.index(FIRST) :])
    expected = expectations.read()
    bad = 0
    groups: dict[str, dict[str, list[str]]] = {name: {} for name in FAULTS}
    for release in wanted:
        with tempfile.TemporaryDirectory() as folder:
            seen = draftkit.run_faults(release, Path(folder))
        wrong = 0
        for name, one in seen.items():
            codes = codes_of(one)
            groups[name].setdefault(codes, []).append(release)
            said = expected.get(name, {}).get(release, codes)
            for text in [*draftkit.disagreements(one)]:
                print(f"! {release} {name}: {text[:300]}")
                wrong += 1
            if said != codes:
                print(f"! {release} {name}: {codes}, not {said}")
                wrong += 1
        print(f"{release}: {len(seen)} checkpoints, {wrong} wrong", flush=True)
        bad += wrong
    print()
    for name, found in groups.items():
        print(name)
        for codes, several in found.items():
            print(f"  {span(several, wanted)}: {codes}")
    return 1 if bad else 0


def codes_of(seen: draftkit.Seen) -> str:
    warnings = [
        one.code
        for one in seen.findings
        if one.severity.value == "WARNING" and one.code != ALWAYS
    ]
    return expectations.shown([one.code for one in seen.errors], warnings)


def span(several: list[str], wanted: list[str]) -> str:
    """``0.5.5 - 0.5.9``, where these are neighbours among those run."""
    places = [wanted.index(one) for one in several]
    if len(places) > 1 and places == list(range(places[0], places[-1] + 1)):
        return f"{several[0]} - {several[-1]}"
    return " ".join(several)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
