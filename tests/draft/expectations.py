"""``expected.txt``: what each release says of each fault. Errors, then ``~`` warnings.

``PATCHKIT_DRAFT_EXPECTED=write`` renews the releases that are run; read the diff.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

FILE = Path(__file__).with_name("expected.txt")

Table = dict[str, dict[str, str]]


def read() -> Table:
    """Fault -> release -> codes."""
    table: Table = {}
    name = ""
    for line in FILE.read_text("utf-8").splitlines() if FILE.exists() else ():
        if line.startswith(" "):
            releases, _, codes = line.strip().partition(":")
            table[name] |= dict.fromkeys(releases.split(), codes.strip())
        elif line:
            name = line
            table[name] = {}
    return table


def write(table: Mapping[str, Mapping[str, str]]) -> None:
    lines = []
    for name, told in table.items():
        lines.append(name)
        groups: dict[str, list[str]] = {}
        for release, codes in told.items():
            groups.setdefault(codes, []).append(release)
        lines += [f"  {' '.join(r)}: {codes}".rstrip() for codes, r in groups.items()]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def shown(errors: Sequence[str], warnings: Sequence[str]) -> str:
    """``-`` if there is nothing to say."""
    parts = [*sorted(errors), *(f"~{one}" for one in sorted(set(warnings)))]
    return " ".join(parts) or "-"
