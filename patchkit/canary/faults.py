"""What each pattern of digits means: the table behind a verdict. Pure.

Faults of wiring (which states reach which slot) are computed from the layers; the
others are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from patchkit.canary.code import EARLY, LATE, MODULI, SLOTS
from patchkit.canary.plan import Plan

Layers = tuple[int, int, int]


@dataclass(frozen=True)
class Fault:
    """``tell``: how to know it from others with the same number."""

    what: str
    tell: str = ""


@dataclass(frozen=True)
class Wiring:
    """``layers``: in front of which layers the states are that slots 0, 1, 2 get.
    ``sure``: these layers are hardly met otherwise."""

    what: str
    layers: Layers
    tell: str
    sure: bool = True

    def taken(self, wanted: Layers) -> dict[int, int]:
        """The digits that are lost by it, and what they are taken for: a slot whose
        state is from another layer finds its block empty."""
        return {
            slot: taken_for(slot, self.layers[slot] - wanted[slot])
            for slot in SLOTS
            if self.layers[slot] != wanted[slot]
        }


def taken_for(slot: int, later: int) -> int:
    """What a digit is taken for if its state is so many layers ``later``."""
    return {1: LATE, -1: EARLY}.get(later, 0) % MODULI[slot]


_TAPS = "the layers that debug-logging's lines name"


def wirings(plan: Plan, wanted: Layers, *, with_ids: bool) -> Iterator[Wiring]:
    """Those that are met; ``wanted`` is what the draft was made for."""
    a, b, c = wanted
    if with_ids:
        yield Wiring(
            "the ids in the draft's config are ignored: SGLang's default layers"
            f" {_named(plan.default_layers)} are captured",
            plan.default_layers,
            _TAPS,
        )
        first, second, third = plan.ids
        yield Wiring(
            "the ids are taken as they are, not plus one", (first, second, third), _TAPS
        )
    else:
        named = "layers are captured that somebody named"
        yield Wiring(named, plan.id_layers, _TAPS, sure=False)
    yield Wiring("slots 0 and 1 are swapped", (b, a, c), _TAPS)
    yield Wiring("slots 1 and 2 are swapped", (a, c, b), _TAPS)
    yield Wiring("slots 0 and 2 are swapped: the order is reversed", (c, b, a), _TAPS)
    yield Wiring("slots are rotated by one", (b, c, a), _TAPS)
    yield Wiring("slots are rotated by two", (c, a, b), _TAPS)
    for slot in SLOTS:
        one = wanted[slot]
        yield Wiring(f"one layer's state, {one}, three times", (one, one, one), _TAPS)
    yield Wiring(
        "every state is one layer late: ids plus one where they should not be",
        (a + 1, b + 1, c + 1),
        _TAPS,
    )
    yield Wiring(
        "every state is one layer early: behind the layer was meant, in front taken",
        (a - 1, b - 1, c - 1),
        _TAPS,
    )


def _named(layers: Layers) -> str:
    return ", ".join(map(str, layers))


#: In place of a value that is not known.
UNKNOWN = -1


def agree(one: Mapping[int, int], other: Mapping[int, int]) -> bool:
    """The same digits, taken for the same values as far as these are known."""
    return one.keys() == other.keys() and all(
        other[digit] in (value, UNKNOWN) for digit, value in one.items()
    )


def of_a_slot(slot: int, value: int) -> str:
    """What its digit being taken for ``value`` says of its state."""
    if value == LATE:
        return "one layer late"
    if value == EARLY:
        return "one layer early"
    if value == UNKNOWN:
        return "of another layer, probably one early or late"
    if slot == 0:  # residues modulo 2 are too few to tell
        return "of another layer, one early or farther off"
    return "of another layer, farther off than the next, or empty"


def one_slot(slot: int, value: int, layers: int) -> Iterator[Fault]:
    """What else a single slot's digit, taken for ``value``, may come from."""
    if value in (LATE, EARLY):
        return
    if slot == 0:
        yield Fault(
            "the embedding, in slot 0",
            "its norm in debug-logging's lines is that of the embedding",
        )
    if slot == 2:
        yield Fault(f"the state behind the last layer, {layers - 1}, in slot 2", _TAPS)
    yield Fault(
        f"zeros, or the columns of fc for slot {slot} are not loaded",
        "patchkit check-draft, and the norm that debug-logging shows",
    )


EMBEDDING = (
    Fault(
        "the draft's embedding is empty: not shared with the target's, or not loaded",
        "debug-logging: the norm of the draft's embeddings is 0",
    ),
    Fault(
        "the draft's attention adds nothing: o_proj not loaded, or its output dropped",
        "the embedding's norm is that of the target's",
    ),
    Fault(
        "embedding and state are swapped in front of the attention",
        "the order of the concatenation in the draft's layer",
    ),
)
SAME_PLACE = Fault(
    "all positions are the same to the draft, so that its attention looks everywhere:"
    " RoPE is off, or q_proj and k_proj are not loaded",
    "the positions that the draft's model is called with",
)
HISTORY = (
    Fault("the draft's KV cache has nothing where the position before should be"),
    Fault("the draft's attention sees its own position only"),
)
OWN_POSITION = (Fault("heads of the draft that look at their own position"),)
UNNAMED = (
    "one layer early or late; with --pair OUT the layers can be named",
    "states in another order",
)
#: What shows a server's candidates and states, which HTTP does not.
SEES = "patchkit canary run or verify --engine, on a CPU:"
NO_RESIDUAL = (
    Fault(
        "the residual stream is missing from the captured states",
        f"{SEES} the states are compared",
    ),
)
SCALED = Fault("the captured states are scaled", f"{SEES} the states are compared")
NO_MLP = (
    Fault(
        "the draft's MLP adds nothing",
        f"{SEES} digits modulo 2, 3 and 5 are one behind, the others are not there",
    ),
)
NO_LAYER = Fault(
    "the draft's layer is not loaded: its tensors have other names",
    "patchkit check-draft",
)
ROW_OFF = (
    Fault(
        "the map d2t, or lm_head, is off by rows",
        f"{SEES} every digit is off by the same number",
    ),
)
FOREIGN = (
    Fault(
        "d2t is ignored or off: candidates are ids of the draft's own vocabulary",
        f"{SEES} candidates stand for no number",
    ),
)
UNSHIFTED = (
    Fault(
        "the draft embeds the token before the one it should",
        f"{SEES} digits modulo 7 and 11 are one behind, the others right",
    ),
)
ROWS = Fault(
    "the captured states are handed on in another order of rows, or shifted",
    f"{SEES} each row is compared with its token",
)
ROWS_AFTER = Fault("after a verify step the draft is handed the states of other rows")
#: Neither states nor embedding reach the draft's lm_head.
LEARNS_NOTHING = (
    Fault(
        "fc is skipped: a single layer's state, as wide as the draft, reaches it",
        "debug-logging: fc is not applied",
    ),
    Fault(
        "weights of the draft are not loaded: fc, its layer, or lm_head",
        "patchkit check-draft",
    ),
    Fault("the draft's residual stream is not that of the states"),
)
#: Nothing is accepted, so that the number names no slot.
NOTHING = (
    *NO_RESIDUAL,
    ROWS,
    SCALED,
    *NO_MLP,
    *FOREIGN,
    *ROW_OFF,
    *UNSHIFTED,
    *LEARNS_NOTHING[:2],
)
#: Nothing that has a form.
SHARDS = Fault(
    "the captured states are the sums of single tensor-parallel ranks: captured before"
    " an all-reduce that was put off",
    "one rank alone, or all-reduce fusion switched off, gives the full accept length;"
    " patchkit apply capture-after-allreduce",
)
PARTS = (
    Fault("weights of the draft are loaded in part", "patchkit check-draft"),
    Fault("requests disturb each other, in the KV cache or in the captured states"),
    ROWS,
    ROWS_AFTER,
)
#: Where each digit from the states is right, and those of the embedding not always.
UNEVEN = (
    Fault("heads of the draft's attention are not loaded, or are too few"),
    ROWS_AFTER,
)
#: Where the states are right, and a digit of theirs is not.
FC_LAYERS = Fault("the draft is made for other layers, or for another order of them")
FC_SLOT = "the columns of fc for slot {} are not loaded, or are empty"
GRAPHS = Fault(
    "CUDA graphs capture other layers than prefill (up to SGLang 0.5.10.post1, where"
    " the draft's config names layers)",
    "--disable-cuda-graph gives the full accept length; patchkit apply keep-layer-ids",
)
PREFILL = Fault("prefill's states take another path than those of verify steps")
#: The first candidate is right, what follows is not.
LATER = (
    Fault(
        "draft steps hand on something else than their state: normed, or the first",
        "draft-positions gives the same",
    ),
    Fault(
        "positions, or places in the KV cache, of the second draft step on are wrong",
        "with draft-positions it gets worse or better",
    ),
    SCALED,
)
POSITIONS = (
    Fault(
        "the second and later draft steps run at positions one too high: a defect of"
        " SGLang before sgl-project/sglang#25015 (up to 0.5.11):"
        " patchkit apply draft-step-positions",
        "draft and draft-ids, which do not mind, give their full accept length",
    ),
)
TARGET_ATTENTION = (
    Fault("the target's attention, its positions, or its KV cache"),
    Fault("the tree mask, where tokens right after a verify step are the wrong ones"),
)
TARGET_MLP = (
    Fault("an MLP or expert of the target, or the sum over tensor-parallel ranks"),
)
TARGET_HEAD = (Fault("the target's lm_head, its weights or its last norm"),)
