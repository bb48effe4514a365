# patchkit: tap
"""The part of the tap's kernel that reads the tensor. See ``kernel``."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _hypot(a, b):
    """Without leaving float32's range."""
    most = tl.maximum(a, b)
    least = tl.minimum(a, b)
    q = tl.where(most > 0, least / most, 0.0)
    return most * tl.sqrt(1.0 + q * q)


@triton.jit
def merge(n0, s0, a0, l0, g0, b0, k0, n1, s1, a1, l1, g1, b1, k1):
    """Two partial results, with squares of norms."""
    return (
        n0 + n1,
        s0 + s1,
        tl.maximum(a0, a1),
        tl.minimum(l0, l1),
        tl.maximum(g0, g1),
        b0 + b1,
        k0 + k1,
    )


@triton.jit
def _merge3(n0, s0, a0, n1, s1, a1):
    return n0 + n1, s0 + s1, tl.maximum(a0, a1)


@triton.jit
def _add2(n0, s0, n1, s1):
    return n0 + n1, s0 + s1


@triton.jit
def _sum_rows(base, valid, W: tl.constexpr, COLS: tl.constexpr, TR: tl.constexpr):
    """Sum of squares, sum, magnitude of TR rows; wrong if one is not finite."""
    column = tl.arange(0, COLS)
    squares = tl.zeros([TR, COLS], tl.float32)
    sums = tl.zeros([TR, COLS], tl.float32)
    most = tl.zeros([TR, COLS], tl.float32)
    for c in tl.static_range(0, W, COLS):
        if c + COLS <= W and TR == 1:
            v = tl.load(base[:, None] + (c + column)[None, :])
        elif c + COLS <= W:
            v = tl.load(
                base[:, None] + (c + column)[None, :], valid[:, None], other=0.0
            )
        else:
            inside = valid[:, None] & ((c + column) < W)[None, :]
            v = tl.load(base[:, None] + (c + column)[None, :], inside, other=0.0)
        v = v.to(tl.float32)
        squares += v * v
        sums += v
        most = tl.maximum(most, tl.abs(v))
    return tl.reduce((squares, sums, most), 1, _merge3)


@triton.jit
def _sum_rows_scaled(
    base, valid, W: tl.constexpr, COLS: tl.constexpr, TR: tl.constexpr
):
    """Norm, sum / W, magnitude and non-finite count of TR rows of any values."""
    column = tl.arange(0, COLS)
    most = tl.zeros([TR, COLS], tl.float32)
    bad = tl.zeros([TR, COLS], tl.int32)
    for c in range(0, W, COLS):
        inside = valid[:, None] & ((c + column) < W)[None, :]
        v = tl.load(base[:, None] + (c + column)[None, :], inside, other=0.0)
        v = tl.abs(v.to(tl.float32))
        finite = v < float("inf")
        most = tl.maximum(most, tl.where(finite, v, 0.0))
        bad += tl.where(finite, 0, 1)
    scale = tl.max(most, 1)
    nonfinite = tl.sum(bad, 1)
    divisor = tl.where(scale > 0, scale, 1.0)
    squares = tl.zeros([TR, COLS], tl.float32)
    sums = tl.zeros([TR, COLS], tl.float32)
    for c in range(0, W, COLS):
        inside = valid[:, None] & ((c + column) < W)[None, :]
        v = tl.load(base[:, None] + (c + column)[None, :], inside, other=0.0)
        v = v.to(tl.float32)
        v = tl.where(tl.abs(v) < float("inf"), v, 0.0) / divisor[:, None]
        squares += v * v
        sums += v
    square, total = tl.reduce((squares, sums), 1, _add2)
    return tl.sqrt(square) * scale, total / W * scale, scale, nonfinite


@triton.jit
def _leave(at, stride, number, value):
    tl.store(at, (number << 32) | (value.to(tl.int64) & 0xFFFFFFFF))
    return at + stride


@triton.jit
def gather(
    x,
    loc,
    out,
    number,
    lane,
    loc_stride,
    rows,
    row_stride,
    programs,
    W: tl.constexpr,
    COLS: tl.constexpr,
    TR: tl.constexpr,
    PP: tl.constexpr,
):
    """Partial results of rows lane * TR ..., to every PP-th word of ``out``."""
    tile = tl.arange(0, TR)
    norm = tl.zeros([TR], tl.float32)
    share = tl.zeros([TR], tl.float32)
    most = tl.zeros([TR], tl.float32)
    least = tl.full([TR], float("inf"), tl.float32)
    greatest = tl.zeros([TR], tl.float32)
    bad = tl.zeros([TR], tl.int32)
    kept = tl.zeros([TR], tl.int32)
    faint = tl.zeros([TR], tl.int32)
    for at in range(lane * TR, rows, programs * TR):
        row = at + tile
        valid = row < rows
        keep = tl.load(loc + row * loc_stride, valid, other=0) != 0
        base = x + row.to(tl.int64) * row_stride
        square, total, biggest = _sum_rows(base, valid, W, COLS, TR)
        one = tl.where(keep, tl.sqrt(square), 0.0)
        # NaN and overflow make `one` not finite; underflow makes it too small.
        faint += tl.where(keep & (biggest > 0) & (square < 1e-30), 1, 0)
        faint += tl.where(one < float("inf"), 0, 1)
        norm = _hypot(norm, one)
        share += tl.where(keep, total, 0.0)
        most = tl.maximum(most, tl.where(keep, biggest, 0.0))
        least = tl.minimum(least, tl.where(keep, one, float("inf")))
        greatest = tl.maximum(greatest, one)
        kept += keep.to(tl.int32)
    share = share / W
    if tl.sum(faint, 0) > 0:
        norm = tl.zeros([TR], tl.float32)
        share = tl.zeros([TR], tl.float32)
        most = tl.zeros([TR], tl.float32)
        least = tl.full([TR], float("inf"), tl.float32)
        greatest = tl.zeros([TR], tl.float32)
        for at in range(lane * TR, rows, programs * TR):
            row = at + tile
            valid = row < rows
            valid = tl.load(loc + row * loc_stride, valid, other=0) != 0
            base = x + row.to(tl.int64) * row_stride
            one, total, biggest, count = _sum_rows_scaled(base, valid, W, COLS, TR)
            norm = _hypot(norm, one)
            share += total
            most = tl.maximum(most, biggest)
            least = tl.minimum(least, tl.where(valid, one, float("inf")))
            greatest = tl.maximum(greatest, one)
            bad += count
    out += lane
    scale = tl.max(norm, 0)
    q = norm / tl.where(scale > 0, scale, 1.0)
    n, s, m, lo, hi, b, k = tl.reduce(
        (q * q, share, most, least, greatest, bad, kept), 0, merge
    )
    n = tl.sqrt(n) * scale
    out = _leave(out, PP, number, n.to(tl.int32, bitcast=True))
    out = _leave(out, PP, number, s.to(tl.int32, bitcast=True))
    out = _leave(out, PP, number, m.to(tl.int32, bitcast=True))
    out = _leave(out, PP, number, k)
    out = _leave(out, PP, number, b)
    out = _leave(out, PP, number, lo.to(tl.int32, bitcast=True))
    out = _leave(out, PP, number, hi.to(tl.int32, bitcast=True))


@triton.jit
def gather_one(
    x,
    loc,
    out,
    number,
    row,
    loc_stride,
    row_stride,
    W: tl.constexpr,
    COLS: tl.constexpr,
    PP: tl.constexpr,
):
    """The same for a single row, whose norm is the least and the greatest too: norm,
    share, magnitude, twice the non-finite elements plus 1 if the row counts."""
    one = tl.arange(0, 1)
    keep = tl.load(loc + row * loc_stride + one) != 0
    base = x + row.to(tl.int64) * row_stride + one
    square, total, most = _sum_rows(base, one == 0, W, COLS, 1)
    norm = tl.where(keep, tl.sqrt(square), 0.0)
    share = tl.where(keep, total / W, 0.0)
    most = tl.where(keep, most, 0.0)
    count = keep.to(tl.int32)
    # NaN and overflow make the norm not finite; underflow makes it too small.
    fine = (norm < float("inf")) & ((square >= 1e-30) | (most == 0.0))
    if tl.sum(tl.where(fine, 0, 1), 0) > 0:
        norm, share, most, bad = _sum_rows_scaled(base, keep, W, COLS, 1)
        count = 2 * bad + keep.to(tl.int32)
    out += row
    n = tl.sum(norm, 0).to(tl.int32, bitcast=True)
    s = tl.sum(share, 0).to(tl.int32, bitcast=True)
    m = tl.sum(most, 0).to(tl.int32, bitcast=True)
    out = _leave(out, PP, number, n)
    out = _leave(out, PP, number, s)
    out = _leave(out, PP, number, m)
    out = _leave(out, PP, number, tl.sum(count, 0))
