# patchkit: tap
"""One kernel that reads a tensor once and writes one record per segment of it.

Programs 0 .. programs-1 of a segment take rows in turn and leave partial results in
``scratch``; the last program of the grid waits for them and writes the records. A
partial result is a few 8-byte words {number of this launch, 32-bit value}: an aligned
8-byte store is seen whole or not at all, so that no fence, no atomic and no clearing is
needed in between. The closing program is the last of the grid, so all others have been
started before it waits. It takes the records' numbers while the others still read.

Sums are made in a fixed order: the same input gives the same bits at every replay.
Squares are summed as they are; only if a sum leaves the range of float32 (an element
that is not finite does so too) is the tensor read again, scaled.

``ring`` describes the record. Needs triton; ``device`` falls back to ``portable``.
"""

# mypy: ignore-errors
from __future__ import annotations

import os

import triton
import triton.language as tl

try:
    from triton.language.extra.cuda import globaltimer
except ImportError:
    globaltimer = None

from .rows import gather, gather_one, merge

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HAS_TIMER = globaltimer is not None and not INTERPRETED

#: Words of scratch in front of the partial results; [0] counts launches.
HEAD = 16
#: Words of a partial result.
PARTS = 7


@triton.jit
def _merge8(n0, s0, a0, l0, g0, b0, k0, z0, n1, s1, a1, l1, g1, b1, k1, z1):
    n, s, a, lo, g, b, k = merge(n0, s0, a0, l0, g0, b0, k0, n1, s1, a1, l1, g1, b1, k1)
    return n, s, a, lo, g, b, k, z0 + z1


@triton.jit
def _fetch(scratch, index, mask, field: tl.constexpr, stride: tl.constexpr):
    return tl.load(scratch + 16 + field * stride + index, mask, other=0, volatile=True)


@triton.jit
def _value(word):
    return word.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _arrived(word, number):
    return ((word >> 32) == number).to(tl.int32)


@triton.jit
def _close(
    state,
    scratch,
    ring,
    number,
    call,
    model,
    rows,
    programs,
    first,
    SEGS: tl.constexpr,
    SEGS2: tl.constexpr,
    PP: tl.constexpr,
    STRIDE: tl.constexpr,
    ONE: tl.constexpr,
    CAPACITY: tl.constexpr,
    TIMER: tl.constexpr,
):
    """Wait for the partial results, write the records.

    SEGS2 * PP is at least the number of threads. Else triton would let several threads
    load the same word, each at its own time, and they would not agree on what is there.
    """
    event = tl.atomic_add(state, SEGS, sem="relaxed")
    step = tl.load(state + 1 + model) + first
    segment = tl.arange(0, SEGS2)
    program = tl.arange(0, PP)
    index = segment[:, None] * PP + program[None, :]
    mask = (segment < SEGS)[:, None] & (program < programs)[None, :]
    n = tl.zeros([SEGS2], tl.float32)
    s = tl.zeros([SEGS2], tl.float32)
    m = tl.zeros([SEGS2], tl.float32)
    lo = tl.zeros([SEGS2], tl.float32)
    hi = tl.zeros([SEGS2], tl.float32)
    b = tl.zeros([SEGS2], tl.int32)
    k = tl.zeros([SEGS2], tl.int32)
    missing = 1
    while missing > 0:
        w0 = _fetch(scratch, index, mask, 0, STRIDE)
        w1 = _fetch(scratch, index, mask, 1, STRIDE)
        w2 = _fetch(scratch, index, mask, 2, STRIDE)
        w3 = _fetch(scratch, index, mask, 3, STRIDE)
        here = _arrived(w0, number) & _arrived(w1, number)
        here = here & _arrived(w2, number) & _arrived(w3, number)
        norm = tl.where(mask, _value(w0), 0.0)
        count = w3.to(tl.int32)
        if ONE:
            kept = count & 1
            bad = count >> 1
            least = tl.where(kept > 0, norm, float("inf"))
            greatest = norm
        else:
            w4 = _fetch(scratch, index, mask, 4, STRIDE)
            w5 = _fetch(scratch, index, mask, 5, STRIDE)
            w6 = _fetch(scratch, index, mask, 6, STRIDE)
            here = here & _arrived(w4, number)
            here = here & _arrived(w5, number) & _arrived(w6, number)
            kept = count
            bad = w4.to(tl.int32)
            least = _value(w5)
            greatest = _value(w6)
        # Reduced here, and not behind the loop: triton 3.6 does not compile a loop
        # that carries the tiles.
        n, s, m, lo, hi, b, k, absent = tl.reduce(
            (
                norm * norm,
                tl.where(mask, _value(w1), 0.0),
                tl.where(mask, _value(w2), 0.0),
                tl.where(mask, least, float("inf")),
                tl.where(mask, greatest, 0.0),
                tl.where(mask, bad, 0),
                tl.where(mask, kept, 0),
                tl.where(mask & (here == 0), 1, 0),
            ),
            1,
            _merge8,
        )
        missing = tl.sum(absent, 0)
    n = tl.sqrt(n)
    # hi is at most the norm: it tells when the squares left the range.
    odd = tl.where((n < float("inf")) & ((n > 1e-15) | (hi == 0.0)), 0, 1)
    if tl.sum(odd, 0) > 0:
        norm = tl.where(mask, _value(_fetch(scratch, index, mask, 0, STRIDE)), 0.0)
        scale = tl.max(norm, 1)
        q = norm / tl.where(scale > 0, scale, 1.0)[:, None]
        n = tl.sqrt(tl.sum(q * q, 1)) * scale
    s = s / tl.maximum(k, 1).to(tl.float32)
    lo = tl.where(k > 0, lo, 0.0)
    ticks = 0
    if TIMER:
        ticks = (globaltimer() >> 10).to(tl.int32)
    # Sequence numbers start at 1.
    seq = (event + 1 + segment).to(tl.int32)
    c0 = call | (segment << 24)
    c1 = step.to(tl.int32)
    c5 = n.to(tl.int32, bitcast=True)
    c6 = m.to(tl.int32, bitcast=True)
    c8 = s.to(tl.int32, bitcast=True)
    c10 = lo.to(tl.int32, bitcast=True)
    c12 = hi.to(tl.int32, bitcast=True)
    i = tl.arange(0, 16)[None, :]
    words = tl.where(i % 4 == 3, seq[:, None], 0)
    words = tl.where(i == 0, c0[:, None], words)
    words = tl.where(i == 1, c1, words)
    words = tl.where(i == 2, k[:, None], words)
    words = tl.where(i == 4, rows, words)
    words = tl.where(i == 5, c5[:, None], words)
    words = tl.where(i == 6, c6[:, None], words)
    words = tl.where(i == 8, c8[:, None], words)
    words = tl.where(i == 9, b[:, None], words)
    words = tl.where(i == 10, c10[:, None], words)
    words = tl.where(i == 12, c12[:, None], words)
    words = tl.where(i == 13, ticks, words)
    # Of the very words that are stored: each warp reads a timer of its own.
    weight = tl.where((i == 7) | (i == 11) | (i > 13), 0, 2 * i + 1)
    check = tl.sum(words * weight, 1)
    words = tl.where(i == 14, check[:, None], words)
    slot = (event + segment) & (CAPACITY - 1)
    tl.store(ring + slot[:, None] * 16 + i, words, (segment < SEGS)[:, None])
    tl.store(state + 1 + model, step)
    tl.store(scratch, number)


@triton.jit(do_not_specialize=["call", "model", "rows", "programs", "first"])
def tap_kernel(
    x,
    loc,
    state,
    scratch,
    ring,
    call,
    model,
    rows,
    row_stride,
    programs,
    first,
    W: tl.constexpr,
    COLS: tl.constexpr,
    TR: tl.constexpr,
    SEGS: tl.constexpr,
    SEGS2: tl.constexpr,
    PP: tl.constexpr,
    CAPACITY: tl.constexpr,
    MASKED: tl.constexpr,
    TIMER: tl.constexpr,
):
    """Grid: programs * SEGS + 1.

    x [rows, SEGS * W] with ``row_stride`` elements between rows; loc [rows], 0 marks a
    padding row (MASKED), else anything; state int64 [1 + models]: records, steps;
    scratch int64 [HEAD + PARTS * SEGS2 * PP], zeroed once; ring int32 [16 * CAPACITY].
    TR rows at a time in tiles of COLS columns; with TR 1 a program has one row.
    ``first``: this tap opens a forward, the
    model's step goes up by one. SEGS2, PP: powers of two >= SEGS, programs.
    """
    pid = tl.program_id(0)
    number = (tl.load(scratch) + 1) & 0x7FFFFFFF
    STRIDE: tl.constexpr = SEGS2 * PP
    ONE: tl.constexpr = TR == 1
    if pid < programs * SEGS:
        if ONE:
            gather_one(
                *(x, loc, scratch, number, pid, row_stride, programs),
                *(W, COLS, PP, STRIDE, MASKED),
            )
        else:
            gather(
                *(x, loc, scratch, number, pid, rows, row_stride, programs),
                *(W, COLS, TR, PP, STRIDE, MASKED),
            )
    else:
        _close(
            *(state, scratch, ring, number, call, model, rows, programs, first),
            *(SEGS, SEGS2, PP, STRIDE, ONE, CAPACITY, TIMER),
        )
