"""What an engine's last words show of the states, in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from patchkit.canary.code import SLOTS

_PRODUCT = re.compile(
    r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x"
)
_WIDTH = re.compile(r"Expected hidden_size to be (\d+), but found: (\d+)")
_FRAME = re.compile(r'\s*File "[^"]*?/(srt/[^"]+)", line (\d+), in (\w+)')
#: Frames that are told, the innermost.
_FRAMES = 3


def in_words(error: str, hidden: int) -> str:
    """``hidden``: of the target, and of the draft; "" where the error shows nothing."""
    full = hidden * len(SLOTS)
    found = _PRODUCT.search(error)
    if found:
        came, takes = map(int, found.groups())
        if takes != full:
            return ""
        states = came / hidden
        if came == hidden:
            return (
                f"fc is applied to {came} columns, and takes {takes}: to a single"
                " state, or to the draft's own"
            )
        return (
            f"{states:g} of {len(SLOTS)} states reach fc: {came} columns, and fc takes"
            f" {takes}"
        )
    found = _WIDTH.search(error)
    if found and found.groups() == (str(hidden), str(full)):
        return f"fc is not applied: {full} columns reach the draft's layer"
    return ""


def frames(trace: Sequence[str]) -> tuple[str, ...]:
    """Where in SGLang's own files it was, innermost first."""
    met = [found for line in trace if (found := _FRAME.match(line))]
    return tuple(f"{one[1]}, line {one[2]}, in {one[3]}" for one in met[::-1][:_FRAMES])
