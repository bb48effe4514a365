"""What target and draft have in common: an MLP that moves, attention that looks. Pure.

**Moving.** A neuron of a SwiGLU MLP adds ``down * silu(gate) * up`` to the state. Its
gate sees a constant channel, which the norm has made ``GATE`` after its weight, where
silu is the identity; its up sees one channel, scaled so that the product is that
channel's value, 0 or 1. Without the constant, which only a complete residual stream
carries, the gate is shut and nothing moves.

**Looking.** Query and key are constant vectors, turned by RoPE. Their scalar product
depends on the distance d of two positions: the sum of ``cos((d - wanted) * f)`` over
the highest frequencies f, greatest at the wanted distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import cos, sin

from patchkit.canary.plan import Constants
from patchkit.canary.tensors import Tensor

#: silu(32) is 32 in float32.
GATE = 32
#: Length of each two-channel vector of a query and a key.
LENGTH = 16.0
#: base of RoPE's frequencies
THETA = 10000.0


@dataclass(frozen=True)
class Move:
    """Add ``value of source * weight`` to each channel of ``to``, if ``gate`` holds the
    amplitude of the constants."""

    source: int
    to: Mapping[int, float]
    gate: int


def swiglu(
    groups: Sequence[Sequence[Move]],
    constants: Constants,
    *,
    dtype: str,
    hidden: int,
    width: int,
    tp: int,
    share: float = 1.0,
) -> dict[str, Tensor]:
    """``gate`` and ``up``, both ``[width, hidden]``, and ``down``, ``[hidden, width]``.

    Group g of G is on tensor-parallel rank ``g * tp // G``; ``share`` scales what is
    added.
    """
    gate = Tensor(dtype, (width, hidden))
    up = Tensor(dtype, (width, hidden))
    down = Tensor(dtype, (hidden, width))
    filled = [0] * tp
    for number, moves in enumerate(groups):
        rank = number * tp // len(groups)
        for move in moves:
            neuron = rank * (width // tp) + filled[rank]
            filled[rank] += 1
            gate.put(neuron, move.gate, GATE / (constants.amplitude * constants.scale))
            up.put(neuron, move.source, 1 / (GATE * constants.scale))
            for channel, weight in move.to.items():
                down.put(channel, neuron, weight * share)
    return {"gate_proj": gate, "up_proj": up, "down_proj": down}


def frequencies(size: int, count: int) -> list[float]:
    """RoPE's ``count`` highest, in radians a position, for ``size`` channels."""
    return [THETA ** (-2 * number / size) for number in range(count)]


def looking(frequency: float, distance: float) -> tuple[float, float]:
    """The two channels of a query that finds the key ``(LENGTH, 0)`` at ``distance``
    positions before its own, or nearest to it."""
    angle = -frequency * distance
    return LENGTH * cos(angle), LENGTH * sin(angle)


def pair_of(residue: int, modulus: int, pairs: int) -> int:
    """Which pair of heads carries a residue: spread evenly over all."""
    return residue * pairs // modulus
