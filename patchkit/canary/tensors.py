"""Tensors that are nearly all zero, and a safetensors file with holes for the zeros.

The format: see ``patchkit.draft.header``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

#: dtype -> bytes of an element
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "BOOL": 1}


@dataclass
class Tensor:
    """``rows``: row -> column -> value, of what is not zero. A vector is one row, 0."""

    dtype: str
    shape: tuple[int, ...]
    rows: dict[int, dict[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = self.shape[-1]

    def put(self, row: int, column: int, value: float) -> None:
        self.rows.setdefault(row, {})[column] = value

    @property
    def bytes(self) -> int:
        return prod(self.shape) * SIZES[self.dtype]


def vector(dtype: str, values: list[float]) -> Tensor:
    return Tensor(dtype, (len(values),), {0: dict(enumerate(values))})


def ones(dtype: str, length: int) -> Tensor:
    return vector(dtype, [1.0] * length)


def rounded(value: float, dtype: str) -> float:
    """``value`` as the dtype holds it: to nearest, ties to even."""
    if dtype == "BF16":
        whole: float = struct.unpack("<f", b"\0\0" + _pack(value, dtype))[0]
        return whole
    code = {"F32": "<f", "F16": "<e"}[dtype]
    found: float = struct.unpack(code, struct.pack(code, value))[0]
    return found


def _pack(value: float, dtype: str) -> bytes:
    if dtype == "BF16":
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    if dtype in ("I64", "BOOL"):
        return int(value).to_bytes(SIZES[dtype], "little", signed=dtype == "I64")
    return struct.pack({"F32": "<f", "F16": "<e"}[dtype], value)


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Only what is not zero is written; the file system keeps no room for the rest."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, one in tensors.items():
        header[name] = {
            "dtype": one.dtype,
            "shape": list(one.shape),
            "data_offsets": [end, end + one.bytes],
        }
        end += one.bytes
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # tensors begin where they can be mapped
    packed: dict[tuple[str, float], bytes] = {}
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        at = 8 + len(head)
        file.truncate(at + end)
        for one in tensors.values():
            size = SIZES[one.dtype]
            for row, entries in one.rows.items():
                if not entries:
                    continue
                first = min(entries)
                piece = bytearray((max(entries) - first + 1) * size)
                for column, value in entries.items():
                    data = packed.get((one.dtype, value))
                    if data is None:
                        data = packed[one.dtype, value] = _pack(value, one.dtype)
                    place = (column - first) * size
                    piece[place : place + size] = data
                file.seek(at + (row * one.columns + first) * size)
                file.write(piece)
            at += one.bytes
