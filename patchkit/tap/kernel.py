# patchkit: tap
"""One kernel that reads a tensor once and writes one record per segment of it.

Programs 0 .. programs-1 of a segment take rows in turn and leave partial results in the
segment's scratch. Its closing program waits for them and writes the record. A partial
result is a few 8-byte words {number of this launch, 32-bit value}: an aligned 8-byte
store is seen whole or not at all, so that no fence, no atomic and no clearing is needed
in between. The closing programs are the last of the grid, so all others have been
started before they wait. They take the records' numbers while the others still read.

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

#: Words of a segment's scratch in front of the partial results: [0] counts launches,
#: [1] says that the segment's closing program knows the step.
HEAD = 16
#: Words of a partial result.
PARTS = 7


@triton.jit
def _add(a, b):
    return a + b


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
    segment,
    call,
    model,
    rows,
    programs,
    first,
    SEGS: tl.constexpr,
    PP: tl.constexpr,
    SIZE: tl.constexpr,
    ONE: tl.constexpr,
    CAPACITY: tl.constexpr,
    TIMER: tl.constexpr,
):
    """Wait for the partial results of a segment, write its record.

    PP is at least the number of threads. Else triton would let several threads load the
    same word, each at its own time, and they would not agree on what is there.
    """
    event = tl.atomic_add(state, 1, sem="relaxed")
    step = tl.load(state + 1 + model) + first
    here = scratch + segment * SIZE
    if SEGS > 1:
        # Segment 0 moves the step on, once all have read it.
        tl.store(here + 1, number << 32)
    program = tl.arange(0, PP)
    mask = program < programs
    others = (program > 0) & (program < SEGS) & (segment == 0)
    n = tl.zeros((), tl.float32)
    s = tl.zeros((), tl.float32)
    m = tl.zeros((), tl.float32)
    lo = tl.zeros((), tl.float32)
    hi = tl.zeros((), tl.float32)
    b = tl.zeros((), tl.int32)
    k = tl.zeros((), tl.int32)
    missing = 1
    while missing > 0:
        w0 = _fetch(here, program, mask, 0, PP)
        w1 = _fetch(here, program, mask, 1, PP)
        w2 = _fetch(here, program, mask, 2, PP)
        w3 = _fetch(here, program, mask, 3, PP)
        there = _arrived(w0, number) & _arrived(w1, number)
        there = there & _arrived(w2, number) & _arrived(w3, number)
        norm = tl.where(mask, _value(w0), 0.0)
        count = w3.to(tl.int32)
        if ONE:
            kept = count & 1
            bad = count >> 1
            least = tl.where(kept > 0, norm, float("inf"))
            greatest = norm
        else:
            w4 = _fetch(here, program, mask, 4, PP)
            w5 = _fetch(here, program, mask, 5, PP)
            w6 = _fetch(here, program, mask, 6, PP)
            there = there & _arrived(w4, number)
            there = there & _arrived(w5, number) & _arrived(w6, number)
            kept = count
            bad = w4.to(tl.int32)
            least = _value(w5)
            greatest = _value(w6)
        absent = tl.where(mask & (there == 0), 1, 0)
        if SEGS > 1:
            at = scratch + 1 + program * SIZE
            read = _arrived(tl.load(at, others, other=0, volatile=True), number)
            absent += tl.where(others & (read == 0), 1, 0)
        # Reduced here, and not behind the loop: triton 3.6 does not compile a loop
        # that carries the words.
        n, s, m, lo, hi, b, k, missing = tl.reduce(
            (
                norm * norm,
                tl.where(mask, _value(w1), 0.0),
                tl.where(mask, _value(w2), 0.0),
                tl.where(mask, least, float("inf")),
                tl.where(mask, greatest, 0.0),
                tl.where(mask, bad, 0),
                tl.where(mask, kept, 0),
                absent,
            ),
            0,
            _merge8,
        )
    n = tl.sqrt(n)
    # hi is at most the norm: it tells when the squares left the range.
    if ((n < float("inf")) & ((n > 1e-15) | (hi == 0.0))) == 0:
        norm = tl.where(mask, _value(_fetch(here, program, mask, 0, PP)), 0.0)
        scale = tl.max(norm, 0)
        q = norm / scale
        n = tl.sqrt(tl.sum(q * q, 0)) * scale
    s = s / tl.maximum(k, 1).to(tl.float32)
    lo = tl.where(k > 0, lo, 0.0)
    ticks = 0
    if TIMER:
        ticks = (globaltimer() >> 10).to(tl.int32)
    i = tl.arange(0, 16)
    # Sequence numbers start at 1.
    words = tl.where(i % 4 == 3, (event + 1).to(tl.int32), 0)
    words = tl.where(i == 0, call | (segment << 24), words)
    words = tl.where(i == 1, step.to(tl.int32), words)
    words = tl.where(i == 2, k, words)
    words = tl.where(i == 4, rows, words)
    words = tl.where(i == 5, n.to(tl.int32, bitcast=True), words)
    words = tl.where(i == 6, m.to(tl.int32, bitcast=True), words)
    words = tl.where(i == 8, s.to(tl.int32, bitcast=True), words)
    words = tl.where(i == 9, b, words)
    words = tl.where(i == 10, lo.to(tl.int32, bitcast=True), words)
    words = tl.where(i == 12, hi.to(tl.int32, bitcast=True), words)
    words = tl.where(i == 13, ticks, words)
    # Of the very words that are stored: each warp reads a timer of its own.
    weight = tl.where((i == 7) | (i == 11) | (i > 13), 0, 2 * i + 1)
    words = tl.where(i == 14, tl.reduce(words * weight, 0, _add), words)
    tl.store(ring + (event & (CAPACITY - 1)) * 16 + i, words)
    if segment == 0:
        tl.store(state + 1 + model, step)
    tl.store(here, number)


@triton.jit(
    do_not_specialize=["loc_stride", "call", "model", "rows", "programs", "first"]
)
def tap_kernel(
    x,
    loc,
    state,
    scratch,
    ring,
    loc_stride,
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
    PP: tl.constexpr,
    CAPACITY: tl.constexpr,
    TIMER: tl.constexpr,
):
    """Grid: (programs + 1) * SEGS.

    x [rows, SEGS * W] with ``row_stride`` elements between rows; loc [rows], of stride
    ``loc_stride``, 0 marks a padding row; stride 0: one number stands for all. state
    int64 [1 + models]: records, steps; scratch int64 [SEGS * (HEAD + PARTS * PP)],
    zeroed once; ring int32 [16 * CAPACITY]. TR rows at a time in tiles of COLS columns;
    with TR 1 a program has one row. ``first``: this tap opens a forward, the model's
    step goes up by one. PP: a power of two, at least ``programs`` and the threads.
    """
    pid = tl.program_id(0)
    SIZE: tl.constexpr = 16 + 7 * PP
    ONE: tl.constexpr = TR == 1
    if pid < programs * SEGS:
        seg = pid // programs
        here = scratch + seg * SIZE
        number = (tl.load(here) + 1) & 0x7FFFFFFF
        lane = pid - seg * programs
        start = x + seg * W
        if ONE:
            gather_one(
                start, loc, here + 16, number, lane, loc_stride, row_stride,
                W, COLS, PP,
            )  # fmt: skip
        else:
            gather(
                start, loc, here + 16, number, lane, loc_stride, rows, row_stride,
                programs, W, COLS, TR, PP,
            )  # fmt: skip
    else:
        # Segment 0 comes last: it waits for the others.
        segment = (programs + 1) * SEGS - 1 - pid
        number = (tl.load(scratch + segment * SIZE) + 1) & 0x7FFFFFFF
        _close(
            state, scratch, ring, number, segment, call, model, rows, programs,
            first, SEGS, PP, SIZE, ONE, CAPACITY, TIMER,
        )  # fmt: skip
