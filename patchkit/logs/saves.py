"""Saved tensors (safetensors), read with the standard library only.

Bytes 0-7: length of the header (little endian); the header is JSON, name -> dtype,
shape, data_offsets, and ``__metadata__``; then the data, row major. patchkit has no
numpy, so a large tensor is compared on some of its rows, spread evenly, and the answer
says so.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: Bytes of a header at most: the limit of the format's own reader.
_HEADER = 100_000_000
#: Elements that are compared at most.
ELEMENTS = 1 << 20
_SIZES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}


class NotSaved(ValueError):
    """No file of ours, or damaged."""


@dataclass(frozen=True)
class Saved:
    """One tensor on disk. ``rows``: those that are not padding, which come first."""

    path: Path
    site: str
    model: str | None
    rank: int
    step: int
    layer: int | None
    rows: int
    columns: int
    dtype: str
    offset: int

    def rows_at(self, numbers: Sequence[int]) -> list[float]:
        """The elements of these rows, one after the other."""
        size = _SIZES[self.dtype] * self.columns
        values: list[float] = []
        with open(self.path, "rb") as file:
            for number in numbers:
                file.seek(self.offset + number * size)
                data = file.read(size)
                if len(data) != size:
                    raise NotSaved(f"{self.path} is cut")
                values += _floats(data, self.dtype)
        return values


def read_saved(path: Path) -> Saved:
    """The header of one file. Raises NotSaved and OSError."""
    with open(path, "rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) != 8 or length > _HEADER:
            raise NotSaved(f"{path} is no safetensors file")
        try:
            header = json.loads(file.read(length))
            about = header.get("__metadata__") or {}
            entry = header["tensor"]
            shape, dtype = entry["shape"], entry["dtype"]
            columns = shape[-1] if shape else 1
            every = math.prod(shape[:-1])
            layer = about.get("layer")
            rows = about.get("rows")
            saved = Saved(
                path,
                str(about["site"]),
                about.get("model") or None,
                int(about.get("rank", 0)),
                int(about["step"]),
                int(layer) if layer not in (None, "", "?", "None") else None,
                min(int(rows), every) if rows not in (None, "", "?") else every,
                columns,
                dtype,
                8 + length + entry["data_offsets"][0],
            )
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as problem:
            raise NotSaved(
                f"{path} is no tensor that a tap saved ({type(problem).__name__}:"
                f" {problem})"
            ) from None
    if dtype not in _SIZES:
        raise NotSaved(f"{path}: {dtype} can't be compared")
    return saved


@dataclass(frozen=True)
class Difference:
    """``relative``: norm of the difference over the norm of the first. ``rows``: looked
    at; ``worst``: the row that differs most."""

    relative: float
    largest: float
    rows: int
    worst: int


def difference(one: Saved, other: Saved) -> Difference:
    """Element by element, over the rows that are not padding. Shapes must agree."""
    most = max(ELEMENTS // max(one.columns, 1), 1)
    count = min(one.rows, most)
    numbers = [i * one.rows // count for i in range(count)] if count else []
    ours, theirs = one.rows_at(numbers), other.rows_at(numbers)
    squares, norm, largest, worst = 0.0, 0.0, 0.0, (-1.0, 0)
    for at, number in enumerate(numbers):
        part = slice(at * one.columns, (at + 1) * one.columns)
        apart = [abs(a - b) for a, b in zip(ours[part], theirs[part])]
        row = math.fsum(a * a for a in apart)
        if math.isnan(row):
            return Difference(math.inf, math.inf, count, number)
        squares += row
        norm += math.fsum(a * a for a in ours[part])
        largest = max(largest, *apart) if apart else largest
        worst = max(worst, (row, number))
    relative = math.sqrt(squares / norm) if norm else (math.inf if squares else 0.0)
    return Difference(relative, largest, count, worst[1])


def _floats(data: bytes, dtype: str) -> list[float]:
    if dtype == "F16":
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    if dtype == "BF16":
        # the upper half of a float32
        wide = array("I", array("H", data))
        if sys.byteorder == "big":
            raise NotSaved("bfloat16 can't be read on a big-endian machine")
        data = array("I", (one << 16 for one in wide)).tobytes()
        dtype = "F32"
    values = array("f" if dtype == "F32" else "d", data)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
