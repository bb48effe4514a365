"""Whether what taps say agrees with what an engine did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from patchkit.verify import pair
from patchkit.verify.evidence import Promise
from patchkit.verify.verdict import Tally

Row = Mapping[str, Any]


def tells_the_story(
    tally: Tally, call: str, promise: Promise, rows: Sequence[Row]
) -> None:
    """Whether the lines of one site agree with what the engine did."""
    layers = list(pair.plan().default_layers)
    said = f"{call}: {promise.site}"
    if "target.states" in promise.views:
        wanted = [n for n in layers if not promise.layers or n in promise.layers]
        for step, told in _by_step(rows):
            tally.expect(
                told == wanted, f"{said}: step {step} says layers {told}, not {wanted}"
            )
    if "target.joined" in promise.views:
        parts = {row["parts"] for row in rows if row.get("mode") == "TARGET_VERIFY"}
        tally.expect(
            parts == {len(layers)}, f"{said}: {sorted(parts)} parts, not {len(layers)}"
        )
    if "draft.entering" in promise.views and call == pair.SINGLE.name:
        fc = "".join("a" if row["fc"] == "applied" else "s" for row in rows)
        draft = "a" + "s" * (pair.STEPS - 1)
        whole = draft * (len(fc) // len(draft) + 1)
        tally.expect(
            bool(fc) and whole.startswith(fc),
            f"{said}: fc is not applied once and skipped {pair.STEPS - 1} times a"
            f" draft: {fc[:24]}",
        )
    tally.expect(bool(rows), f"{said} never spoke")


def _by_step(rows: Sequence[Row]) -> Iterator[tuple[int, list[int]]]:
    steps: dict[int, list[int]] = {}
    for row in rows:
        steps.setdefault(row["step"], []).append(row["layer"])
    yield from steps.items()
