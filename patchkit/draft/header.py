"""Headers of safetensors files: names, dtypes, shapes and places, never the tensors.

The format: eight bytes, the length of a JSON object, little endian; the object, name ->
``dtype``, ``shape`` and ``data_offsets`` behind it; the data.
"""

from __future__ import annotations

import codecs
import json
import os
import stat
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from patchkit.errors import Refused

#: The format's own limit for its header.
LONGEST = 100_000_000
#: dtype -> bits of an element
BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
    "F4": 4,
}

_AGAIN = "copy or download the checkpoint again; this file is not whole"


@dataclass(frozen=True)
class Tensor:
    """``begin`` and ``end`` are bytes of ``file``; both 0 where it has no such place
    (a ``.bin``)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int = 0
    end: int = 0

    @property
    def shown(self) -> str:
        """``7168x21504``."""
        return "x".join(map(str, self.shape)) or "a number"


def read_header(path: Path) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """The tensors of one file, in its own order, and its ``__metadata__``.

    Raises Refused for a file that is no safetensors file, or lies about itself.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 10:
                raise _bad(path, f"it has {size} bytes, less than any header")
            if length < 2:
                raise _bad(path, f"it says that its header has {length} bytes")
            if length > min(size - 8, LONGEST):
                raise _bad(
                    path,
                    f"it says that its header has {length} bytes, but the file has"
                    f" {size}",
                )
            data = file.read(length)
    except OSError as problem:
        raise _bad(path, problem.strerror or str(problem)) from None
    entries = parse_json(data, str(path))
    if not isinstance(entries, dict):
        raise _bad(path, "its header is no JSON object")
    metadata = entries.pop("__metadata__", {})
    found = tuple(
        _tensor(path, name, entry, 8 + length, size) for name, entry in entries.items()
    )
    return found, metadata if isinstance(metadata, dict) else {}


def open_regular(path: Path) -> Any:
    """Open a file, but no pipe or device, which could be read for ever."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(0, "it is no file")
    return open(path, "rb")


def parse_json(data: bytes, name: str) -> Any:
    """Raises Refused for what is not JSON."""
    if data.startswith(codecs.BOM_UTF8):
        raise Refused(
            f"{name} begins with a byte-order mark, which transformers refuses",
            hint="save it as UTF-8 without one",
        )
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        said = " ".join(str(problem).split())[:120]
        raise Refused(
            f"{name}: this is not JSON: {said}",
            hint="is the file whole? A download that failed may have left a page"
            " of text, or a Git LFS pointer",
        ) from None


def _tensor(path: Path, name: str, entry: Any, start: int, size: int) -> Tensor:
    try:
        dtype, shape = entry["dtype"], entry["shape"]
        first, last = entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise _bad(path, f"{name[:80]}: dtype, shape or data_offsets is missing") from (
            None
        )
    numbers = [*shape, first, last] if isinstance(shape, list) else [None]
    if not all(type(one) is int and one >= 0 for one in numbers):
        raise _bad(path, f"{name[:80]}: its shape and offsets are no counts")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _bad(path, f"{name[:80]}: no dtype is called {str(dtype)[:40]!r}")
    if start + last > size:
        raise _bad(
            path,
            f"{name[:80]} ends at byte {start + last}, but the file has {size}: it is"
            " cut off",
        )
    if (last - first) * 8 != prod(shape) * BITS[dtype]:
        raise _bad(
            path,
            f"{name[:80]}: {'x'.join(map(str, shape))} of {dtype} does not take"
            f" {last - first} bytes",
        )
    return Tensor(name, dtype, tuple(shape), path, start + first, start + last)


def _bad(path: Path, why: str) -> Refused:
    return Refused(f"{path} can't be read as safetensors: {why}", hint=_AGAIN)
