"""What a pair is made for: sizes, dtype, captured layers. Pure.

Amplitudes are chosen so that every number of a forward pass is a small multiple of a
power of two: the RMS of each normed state is a power of two by construction (constant
channels fill up its sum of squares), the constants are powers of two themselves. So
bfloat16 and float16 hold it all without rounding, and tensor parallelism may add it up
in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import isqrt

from patchkit.canary.code import WIDTH
from patchkit.errors import UsageError

#: dtype in config.json -> dtype in safetensors
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
#: Most constant channels of a state: one that gates, four that fill up.
CONSTANTS = 5
#: Head sizes are DeepSeek-V3's own: GPU attention backends take few others.
Q_LORA, KV_LORA, NOPE, ROPE, VALUE = 256, 512, 128, 64, 128
DRAFT_HEAD = 128
#: Least layers for which SGLang's default captured layers are three.
FEWEST = 7


@dataclass(frozen=True)
class Constants:
    """Constant channels of a state. ``amplitude`` gates the MLPs and is a power of
    two; ``fillers`` make the sum of squares ``hidden / scale**2``, so that a norm
    multiplies by ``scale``, a power of two."""

    amplitude: int
    fillers: tuple[int, ...]
    scale: int


@dataclass(frozen=True)
class Plan:
    """``ids`` are the layers that ``draft-ids/config.json`` names: the state *after*
    each. ``tp``: over how many ranks the digits are spread; the pair runs with others,
    too."""

    layers: int
    hidden: int
    heads: int
    dtype: str
    ids: tuple[int, int, int]
    tp: int

    @property
    def default_layers(self) -> tuple[int, int, int]:
        """In front of which layers SGLang captures if no ids are given."""
        return 2, self.layers // 2, self.layers - 3

    @property
    def id_layers(self) -> tuple[int, int, int]:
        """In front of which layers it should capture for ``ids``."""
        first, second, third = self.ids
        return first + 1, second + 1, third + 1

    @property
    def looking_back(self) -> int:
        """The layer whose attention brings a digit from the position before."""
        return self.layers // 2

    @property
    def intermediate(self) -> int:
        """Of every MLP and expert, target and draft."""
        return 64 * self.tp

    @property
    def constants(self) -> Constants:
        """Of the target's states: five digits of amplitude 1, and these."""
        return _constants(self.hidden, digits=5, copies=1)

    @property
    def draft_constants(self) -> Constants:
        """Of the draft's state in front of its MLP: seven channels of amplitude 1 (the
        digits, and two that are a digit or its stand-in), three gates, and fillers."""
        return _constants(self.hidden, digits=7, copies=3)

    def block(self, layer: int) -> int:
        """First channel of the block that holds the number in front of ``layer``."""
        return CONSTANTS + WIDTH * layer


@dataclass(frozen=True)
class DraftKind:
    """``with_ids``: its config names ``Plan.ids`` as the layers to capture. ``strict``:
    it notices that SGLang counts the positions of draft steps wrongly."""

    with_ids: bool = False
    strict: bool = False

    def layers(self, plan: Plan) -> tuple[int, int, int]:
        """In front of which layers its states are captured."""
        return plan.id_layers if self.with_ids else plan.default_layers


#: By the names of their folders.
DRAFTS = {
    "draft": DraftKind(),
    "draft-ids": DraftKind(with_ids=True),
    "draft-positions": DraftKind(strict=True),
}


def make_plan(
    *,
    layers: int = 8,
    hidden: int | None = None,
    heads: int | None = None,
    dtype: str = "float32",
    ids: Sequence[int] | None = None,
    tp: int = 1,
) -> Plan:
    """Fill in what is not given. Raises UsageError for sizes that don't fit."""
    if dtype not in DTYPES:
        raise UsageError(
            f"--dtype {dtype}: a pair is made in {', '.join(DTYPES)}",
            hint="quantized weights are not supported",
        )
    if layers < FEWEST:
        raise UsageError(
            f"--layers {layers}: with fewer than {FEWEST}, SGLang's default captured"
            " layers (2, n // 2, n - 3) are not three",
            hint=f"give {FEWEST} or more",
        )
    if tp < 1:
        raise UsageError(f"--tp {tp} is no number of ranks", hint="give 1 or more")
    least = CONSTANTS + WIDTH * (layers + 1)
    if hidden is None:
        hidden = -(-least // 128) * 128
    if hidden < least or hidden % 64:
        raise UsageError(
            f"--hidden {hidden}: {layers} layers need {CONSTANTS} constants and"
            f" {layers + 1} blocks of {WIDTH} channels, {least} in all, and a multiple"
            " of 64",
            hint=f"give {-(-least // 64) * 64} or more",
        )
    if heads is None:
        heads = max(4, 2 * tp)
    if heads < 2 or heads % (2 * tp):
        raise UsageError(
            f"--heads {heads}: heads come in pairs, and each of {tp} ranks holds as"
            " many",
            hint=f"give a multiple of {2 * tp}",
        )
    plan = Plan(layers, hidden, heads, dtype, _ids(ids, layers), tp)
    _ = plan.constants, plan.draft_constants
    return plan


def _ids(ids: Sequence[int] | None, layers: int) -> tuple[int, int, int]:
    if ids is None:  # the third differs from the default, the first of all is 1
        ids = (1, layers // 2 - 1, layers - 2)
    if len(ids) != 3:
        raise UsageError(
            f"--ids: {len(ids)} given; the draft reads three states", hint="give three"
        )
    first, second, third = ids
    if not 0 < first < second < third < layers - 1:
        raise UsageError(
            f"--ids {','.join(map(str, ids))}: SGLang hands states on in the order of"
            f" layers, and of {layers} layers it can capture after 1 to {layers - 2}",
            hint="give three different ids in rising order",
        )
    return first, second, third


def _constants(hidden: int, *, digits: int, copies: int) -> Constants:
    """The least sum of squares ``hidden / 4**m`` that holds ``digits`` ones and
    ``copies`` of an amplitude of 2 or 4, filled up by at most four squares."""
    scale = 1 << 12
    while scale > 1:
        scale //= 2
        for amplitude in (4, 2):
            rest = hidden // scale**2 - digits - copies * amplitude**2
            if hidden % scale**2 == 0 and rest >= 0:
                return Constants(amplitude, _squares(rest), scale)
    raise UsageError(
        f"--hidden {hidden}: no RMS that is a power of two", hint="give more"
    )


def _squares(total: int) -> tuple[int, ...]:
    """The fewest whole numbers whose squares add up to ``total``: four at most
    (Lagrange)."""
    choices = range(1, isqrt(total) + 1)
    return next(
        found
        for count in range(5)
        for found in combinations_with_replacement(choices, count)
        if sum(one * one for one in found) == total
    )
