# patchkit: tap
"""The kernel's record made of torch operations: no triton, any device, any number type.

Slower (some forty small operations), but as safe to capture: nothing is read back,
and a graph's replay needs no Python. The ring lies on the device, and each record is
followed by a copy of the whole small ring to the host.
"""

from __future__ import annotations

import torch

from .ring import CALL_BITS, WEIGHTS, WORDS


class Writer:
    """A ring of ``capacity`` records on ``device`` and its copy in host memory."""

    def __init__(self, device: torch.device, capacity: int) -> None:
        self.capacity = capacity
        pinned = device.type != "cpu"
        self.host = torch.zeros(capacity * WORDS, dtype=torch.int32, pin_memory=pinned)
        self._ring = torch.zeros(capacity, WORDS, dtype=torch.int32, device=device)
        self._events = torch.zeros(1, dtype=torch.int64, device=device)
        self._weights = torch.tensor(WEIGHTS, device=device)

    def write(
        self,
        tensor: torch.Tensor,
        loc: torch.Tensor | None,
        segments: int,
        steps: torch.Tensor,
        *,
        call: int,
        first: bool,
    ) -> None:
        """Records of ``tensor`` [rows, segments * width]; ``steps`` [1] is the model's.

        ``loc`` [rows]: 0 marks a padding row.
        """
        if first:
            steps += 1
        rows = tensor.shape[0]
        if loc is None:
            keep = torch.ones(rows, dtype=torch.bool, device=tensor.device)
        else:
            keep = loc != 0
        floats, nonfinite = _statistics(tensor, keep, segments)
        counted = keep.sum()
        norm, absmax, share, least, greatest = floats
        index = torch.arange(segments, device=tensor.device)
        number = self._events + index + 1
        zero = torch.zeros_like(number)
        words = torch.stack(
            (
                call + (index << CALL_BITS),
                steps.expand(segments),
                counted.expand(segments),
                number,
                zero + rows,
                _bits(norm),
                _bits(absmax),
                number,
                _bits(share),
                nonfinite,
                _bits(least),
                number,
                _bits(greatest),
                zero,
                zero,
                number,
            ),
            dim=1,
        )
        words[:, 14] = ((words & 0xFFFFFFFF) * self._weights).sum(1)
        slots = (number - 1) % self.capacity
        self._ring.index_copy_(0, slots, _wrapped(words))
        self._events += segments
        self.host.copy_(self._ring.view(-1), non_blocking=True)


def _statistics(
    tensor: torch.Tensor, keep: torch.Tensor, segments: int
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Norm, magnitude, share, least and greatest row norm [segments] as float32, and
    the number of elements that are not finite. Scaled: no square leaves the range."""
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    values = tensor.to(wide).unflatten(1, (segments, -1))
    counted = keep[:, None, None]
    finite = torch.isfinite(values)
    nonfinite = (~finite & counted).sum((0, 2))
    values = torch.where(finite & counted, values, 0.0)
    most = values.abs().amax(2)
    scale = torch.where(most > 0, most, 1.0)
    scaled = values / scale[..., None]
    row = (scaled * scaled).sum(2).sqrt() * scale
    share = (scaled.sum(2) / values.shape[2] * scale / keep.sum().clamp(min=1)).sum(0)
    greatest = row.amax(0)
    whole = torch.where(greatest > 0, greatest, 1.0)
    norm = (row / whole).square().sum(0).sqrt() * whole
    least = torch.where(keep[:, None], row, torch.inf).amin(0)
    least = torch.where(keep.any(), least, 0.0)
    found = (norm, most.amax(0), share, least, greatest)
    return tuple(one.to(torch.float32) for one in found), nonfinite


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.contiguous().view(torch.int32).to(torch.int64)


def _wrapped(words: torch.Tensor) -> torch.Tensor:
    """int64 modulo 2**32, as int32."""
    low = words & 0xFFFFFFFF
    return torch.where(low >= 1 << 31, low - (1 << 32), low).to(torch.int32)
