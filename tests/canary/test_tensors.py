"""Sparse tensors and the file with holes, read by patchkit's own reader."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.canary.tensors import (
    SIZES,
    Tensor,
    ones,
    rounded,
    vector,
    write_safetensors,
)
from patchkit.draft.header import read_header


def test_a_file_is_read_back(tmp_path):
    made = Tensor("BF16", (3, 5))
    made.put(1, 2, 1.5)
    made.put(1, 4, -2.0)
    made.put(2, 0, 0.25)
    tensors = {
        "a": made,
        "b": vector("I64", [3.0, -4.0, 0.0]),
        "c": ones("F16", 3),
        "d": vector("BOOL", [1.0, 0.0]),
        "e": Tensor("F32", (1000, 1000), {999: {999: 1.0}}),
    }
    path = tmp_path / "x.safetensors"
    write_safetensors(path, tensors)
    found, metadata = read_header(path)
    assert metadata == {"format": "pt"}
    data = path.read_bytes()
    read = {one.name: data[one.begin : one.end] for one in found}
    halves = struct.unpack("<15H", read["a"])
    assert halves == (0,) * 7 + (0x3FC0, 0, 0xC000) + (0x3E80,) + (0,) * 4
    assert struct.unpack("<3q", read["b"]) == (3, -4, 0)
    assert struct.unpack("<3e", read["c"]) == (1, 1, 1)
    assert read["d"] == b"\1\0"
    assert read["e"][:-4] == bytes(3999996) and read["e"][-4:] == struct.pack("<f", 1)
    assert path.stat().st_blocks * 512 < 100_000 < path.stat().st_size


@given(st.floats(-1e4, 1e4, width=32))
def test_rounding_is_to_the_nearest(value):
    for dtype, bits in (("BF16", 8), ("F16", 11), ("F32", 24)):
        held = rounded(value, dtype)
        assert rounded(held, dtype) == held
        assert abs(held - value) <= max(abs(value) * 2.0**-bits, 2.0**-25)


@pytest.mark.parametrize(
    ("value", "held"),
    [(257.0, 256.0), (259.0, 260.0), (258.0, 258.0), (-257.0, -256.0)],
)
def test_bfloat16_ties_go_to_even(value, held):
    assert rounded(value, "BF16") == held


def test_sizes():
    assert Tensor("BF16", (3, 4)).bytes == 24 and SIZES["I64"] == 8
