# patchkit: tap
"""A tensor's statistics over its finite elements. Pure: it only reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

# Bounds the wide copies that a tap makes. Also below 2**24, so that a count of
# non-finite elements in float32 is exact.
CHUNK = 1 << 22

# Named and not tried out: on CUDA, converting from a type without a conversion is a
# device-side assert, which ends the process. Some names are missing in older torch.
_CONVERTIBLE = frozenset(
    getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
        *("int64", "int32", "int16", "int8", "uint8", "bool"),
    )
    if hasattr(torch, name)
)


@dataclass(frozen=True)
class Statistics:
    """Norm (L2), mean and largest magnitude of the finite elements; 0 if none."""

    norm: float
    mean: float
    absmax: float
    nonfinite: int


@dataclass(frozen=True)
class RowStatistics(Statistics):
    """What a device finds besides: rows counted, least and greatest norm of one."""

    rows: int
    row_norm_min: float
    row_norm_max: float


def measure(tensor: torch.Tensor) -> Statistics | None:
    """Statistics of ``tensor`` (any shape and strides); None if its kind has none.

    Integers, bool and fp8 count as the numbers they convert to. Complex, quantised,
    sparse, meta and packed sub-byte tensors have none. One transfer to the host.
    """
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        return None
    wide = _accumulator(tensor.dtype, tensor.device.type)
    if wide is None:
        return None
    if tensor.numel() == 0:
        return Statistics(norm=0.0, mean=0.0, absmax=0.0, nonfinite=0)
    partials = [value for part in _parts(tensor) for value in _reduce(part, wide)]
    return _combine(torch.stack(partials).tolist(), tensor.numel())


def _reduce(part: torch.Tensor, wide: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Scaled sum, scaled norm, scale, non-finite count of a part, on its device."""
    values = part.to(wide)
    nonfinite = torch.isfinite(values).logical_not().sum(dtype=wide)
    finite = torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    absmax = torch.linalg.vector_norm(finite, ord=math.inf)
    # Without the scale, float32 squares overflow above 1e19: just the tensors that
    # somebody who debugs wants a number for. `finite` is our own copy.
    finite.div_(torch.where(absmax > 0, absmax, torch.ones_like(absmax)))
    return finite.sum(), torch.linalg.vector_norm(finite), absmax, nonfinite


def _combine(values: Sequence[float], count: int) -> Statistics:
    sums, norms, scales = values[0::4], values[1::4], values[2::4]
    nonfinite = int(sum(values[3::4]))
    # Dividing first: the sum of finite doubles can be infinite, their mean cannot.
    finite = max(count - nonfinite, 1)
    return Statistics(
        norm=math.hypot(*(n * s for n, s in zip(norms, scales, strict=True))),
        mean=math.fsum(t / finite * s for t, s in zip(sums, scales, strict=True)),
        absmax=max(scales),
        nonfinite=nonfinite,
    )


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Views of at most CHUNK elements each."""
    if tensor.numel() <= CHUNK:
        yield tensor
        return
    longest = max(range(tensor.dim()), key=lambda dim: tensor.shape[dim])
    across = tensor.numel() // tensor.shape[longest]
    for part in torch.split(tensor, max(1, CHUNK // across), dim=longest):
        yield from _parts(part)


def _accumulator(dtype: torch.dtype, device: str) -> torch.dtype | None:
    """The type to compute in; None where ``dtype`` cannot be converted to it."""
    if dtype not in _CONVERTIBLE:
        return None
    # float64 is slow on many GPUs and absent on some, so only where the input needs it.
    double = device == "cpu" or dtype == torch.float64
    return torch.float64 if double else torch.float32
