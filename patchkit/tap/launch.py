# patchkit: tap
"""Launches the kernel: how many programs, which scratch, what has been compiled."""

# mypy: disable-error-code="no-untyped-call, misc"
from __future__ import annotations

from dataclasses import dataclass

import torch

from . import kernel

DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
#: More segments than this are too many for one launch.
MOST_SEGMENTS = 8
#: Programs of one segment. The last program waits for the others, so they are few
#: enough to be on the device together.
MOST_PROGRAMS = 256
_CHUNK = 1 << 20
_MOST_TILES = 64


class NotReady(Exception):
    """Nothing may be compiled or allocated now: a graph is being captured."""


@dataclass(frozen=True)
class Plan:
    """``programs`` (of ``warps``) take ``tile_rows`` rows at a time in tiles of
    ``columns``; ``bucket``: a power of two that holds them."""

    programs: int
    bucket: int
    tile_rows: int
    columns: int
    warps: int


def plan(rows: int, width: int, itemsize: int, segments: int) -> Plan | None:
    """How to read [rows, segments * width]; None if the rows are too long.

    Few rows: a program each, its warps side by side, 16 bytes a thread; many rows:
    a warp each. The numbers are the best that bench/gpu found on an H200. Few distinct
    answers, since each is compiled.
    """
    most = MOST_PROGRAMS if segments <= 4 else MOST_PROGRAMS // 2
    if rows <= most:
        tile_rows, warps, programs = 1, 4, max(rows, 1)
        columns = warps * 32 * (16 // itemsize)
    elif rows <= 4 * most:
        tile_rows, warps, programs = 2, 4, min((rows + 1) // 2, most)
        columns = 512
    else:
        tile_rows, warps, programs = 8, 8, most
        columns = 256
    columns = min(columns, max(32, power_of_two(width)))
    while width > 32 * columns and columns < 4096:
        columns *= 2
    if width > _MOST_TILES * columns:
        return None
    # At least a word for each thread, see ``kernel``.
    bucket = 128 if programs <= 128 and warps == 4 else 256
    return Plan(programs, bucket, tile_rows, columns, warps)


def power_of_two(number: int) -> int:
    """The least one that is not less."""
    return 1 << (number - 1).bit_length()


class Launcher:
    """The kernel on one device, and the memory that it needs.

    Memory is taken before a graph is captured and never given back: graphs hold its
    address. Each captured node has scratch of its own, so that graphs may run side by
    side; eager launches share one per site and stream.
    """

    def __init__(self, device: torch.device, capacity: int) -> None:
        self.device = device
        self.capacity = capacity
        # In place of a mask: no row is padding.
        self._one = torch.ones(16, dtype=torch.int64, device=device)
        self._compiled: set[object] = set()
        self._shared: dict[object, torch.Tensor] = {}
        self._chunk = torch.zeros(0, dtype=torch.int64, device=device)
        self.prepare()

    def prepare(self) -> None:
        """Have enough scratch for the next capture. Not while capturing."""
        if self._chunk.numel() < _CHUNK // 2:
            self._chunk = torch.zeros(_CHUNK, dtype=torch.int64, device=self.device)

    def launch(
        self,
        tensor: torch.Tensor,
        loc: torch.Tensor | None,
        how: Plan,
        segments: int,
        state: torch.Tensor,
        ring: torch.Tensor,
        *,
        call: int,
        model: int,
        first: bool,
        owner: object,
        capturing: bool,
    ) -> None:
        """One node for ``tensor`` [rows, segments * width], last axis of stride 1.

        ``owner``: what shares scratch with earlier eager launches. Raises NotReady.
        """
        rows, width = tensor.shape[0], tensor.shape[1] // segments
        mask = self._one if loc is None else loc
        variant = (
            *(tensor.dtype, width, how.tile_rows, how.columns, how.bucket, segments),
            how.warps,
            *(mask.dtype, _aligned(tensor), _aligned(mask)),
            *(tensor.stride(0) % 16 == 0, tensor.stride(0) == 1),
            tensor.stride(0) >= 1 << 31,
        )
        if capturing and variant not in self._compiled:
            raise NotReady("did not run before the capture")
        size = kernel.HEAD + kernel.PARTS * how.bucket
        scratch = self._scratch(segments * size, owner, capturing)
        kernel.tap_kernel[((how.programs + 1) * segments,)](
            tensor,
            mask,
            state,
            scratch,
            ring,
            # SGLang's draft loop takes every steps-th slot.
            0 if loc is None else loc.stride(0),
            call,
            model,
            rows,
            tensor.stride(0),
            how.programs,
            int(first),
            W=width,
            COLS=how.columns,
            TR=how.tile_rows,
            SEGS=segments,
            PP=how.bucket,
            CAPACITY=self.capacity,
            TIMER=kernel.HAS_TIMER and self.device.type == "cuda",
            num_warps=how.warps,
        )
        self._compiled.add(variant)

    def _scratch(self, words: int, owner: object, capturing: bool) -> torch.Tensor:
        if capturing:
            return self._take(words)
        self.prepare()
        known = self._shared.get((owner, words))
        if known is None:
            known = self._shared[owner, words] = self._take(words)
        return known

    def _take(self, words: int) -> torch.Tensor:
        words = -(-words // 16) * 16
        if words > self._chunk.numel():
            raise NotReady("more taps in one capture than memory was set aside for")
        taken, self._chunk = self._chunk[:words], self._chunk[words:]
        return taken


def _aligned(tensor: torch.Tensor) -> bool:
    address: int = tensor.data_ptr()
    return address % 16 == 0
