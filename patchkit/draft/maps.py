"""The vocabulary maps of a draft, d2t and t2d: the only tensors that are read."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from patchkit.draft.checkpoint import Checkpoint
from patchkit.draft.header import Tensor, open_regular
from patchkit.errors import Refused

#: A map of more bytes is not read: no vocabulary is so large.
LARGEST = 1 << 26
_CODES = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "F64": "d"}


@dataclass(frozen=True)
class Map:
    """``values``: ``None`` where they were not read."""

    tensor: Tensor
    values: Sequence[float] | None


def find_map(checkpoint: Checkpoint, name: str) -> Map | None:
    """The map ``name`` (``d2t``, ``t2d``), whatever stands in front of its name."""
    for tensor in checkpoint.tensors.values():
        if tensor.name == name or tensor.name.endswith("." + name):
            return Map(tensor, _values(checkpoint, tensor))
    return None


def _values(checkpoint: Checkpoint, tensor: Tensor) -> Sequence[float] | None:
    if tensor.name in checkpoint.values:
        given: list[Any] = checkpoint.values[tensor.name]
        return [float(one) if isinstance(one, float) else int(one) for one in given]
    if tensor.end - tensor.begin > LARGEST or tensor.begin == 0:
        return None
    with open_regular(tensor.file) as file:
        file.seek(tensor.begin)
        data = file.read(tensor.end - tensor.begin)
    if len(data) < tensor.end - tensor.begin:
        raise Refused(f"{tensor.file} is cut off", hint="download it again")
    if tensor.dtype == "BOOL":
        return [int(one != 0) for one in data]
    if tensor.dtype in _CODES:
        found: array[Any] = array(_CODES[tensor.dtype])
        found.frombytes(data)
        return found
    if tensor.dtype == "F32":
        return [one for (one,) in struct.iter_unpack("<f", data)]
    if tensor.dtype == "BF16":
        wide = struct.iter_unpack("<H", data)
        return [struct.unpack("<f", struct.pack("<I", one << 16))[0] for (one,) in wide]
    return None
