"""What the draft received, in words, and what that may come from. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from patchkit.canary import faults
from patchkit.canary.faults import Fault, Wiring
from patchkit.canary.plan import Plan
from patchkit.canary.states import Found, Kind, States, kinds

Layers = tuple[int, int, int]


def received_text(
    states: States, plan: Plan, wanted: Layers, *, with_ids: bool
) -> tuple[str, tuple[Fault, ...]]:
    """Of states that are not right. ``wanted``: the layers that the draft is made for,
    ``with_ids``: by ids in its config."""
    texts, found = [], list[Fault]()
    if states.narrow is not None:
        columns, takes = states.narrow
        texts.append(
            f"the draft receives {columns} columns, and fc takes {takes}: {columns}"
            f" are {columns / plan.hidden:g} of {takes // plan.hidden} states"
        )
        if columns == plan.hidden:
            texts[-1] += ", and fc is skipped without a word"
    if not states.clean:
        where, slots = _where(states)
        told = _by_text(slots, plan, wanted)
        parts = [
            f"{_slots(each, 'receive')} {text}" if text else ""
            for text, each in told.items()
        ]
        texts.append(where + "; ".join(filter(None, parts)))
        same = _wirings(states, plan, wanted, with_ids=with_ids)
        if same:
            sure = same[0].sure and len(same) == 1
            texts[-1] += f": {'probably' if sure else 'may be'} {same[0].what}"
        found += [Fault(one.what, one.tell) for one in same]
        found += _faults(set().union(*map(kinds, slots)), where)
    if states.skipped:
        right = " and the states are right" if states.clean else ""
        texts.append(f"fc is not applied to the states, though its width fits{right}")
    return "; ".join(texts), tuple(found)


def _where(states: States) -> tuple[str, Sequence[Counter[Found]]]:
    """Whether it is so in prefill only, or after verify steps only."""
    clean = [
        all(kinds(one) <= {Kind.RIGHT} for one in each)
        for each in (states.prefill, states.verify)
    ]
    if clean == [False, True] and any(states.verify):
        return "in prefill only, ", states.prefill
    if clean == [True, False] and any(states.prefill):
        return "after verify steps only, ", states.verify
    return "", states.slots


def _by_text(
    slots: Sequence[Counter[Found]], plan: Plan, wanted: Layers
) -> Mapping[str, list[int]]:
    """What is said of which slots."""
    found: dict[str, list[int]] = {}
    layers = {}
    for slot, counts in enumerate(slots):
        wrong = Counter({k: n for k, n in counts.items() if k.kind is not Kind.RIGHT})
        if not wrong:
            continue
        most = wrong.most_common(1)[0][0]
        if kinds(wrong) == {Kind.LAYER} and len(wrong) == 1:
            layers[slot] = most.layer or 0
            continue
        rows, every = sum(wrong.values()), sum(counts.values())
        text = _WORDS[most.kind].format(factor=most.factor)
        if rows < every:
            text += f" in {rows} of {every} rows"
        found.setdefault(text, []).append(slot)
    if not layers:
        return found
    made = _and(wanted[slot] for slot in layers)
    if len(layers) == 1:
        ((slot, layer),) = layers.items()
        off = {1: ", one layer late", -1: ", one layer early"}
        text = f"the state {_layer(layer, plan)}{off.get(layer - wanted[slot], '')}"
    elif max(layers.values()) < plan.layers:
        text = f"the states in front of layers {_and(layers.values())}"
    else:
        text = f"the states {_and(_layer(one, plan) for one in layers.values())}"
    text += f" (made for: in front of {made})"
    return {text: list(layers), **found}


_WORDS = {
    Kind.LAYER: "states of changing layers",
    Kind.SCALED: "states multiplied by {factor:g}",
    Kind.ROWS: "states of other tokens than those they come with",
    Kind.ZEROS: "zeros",
    Kind.PARTIAL: "each rank's own part of the sum",
    Kind.RESIDUAL: "the residual alone, without what the last MLP adds",
    Kind.NO_CONSTANT: "states without their residual stream",
    Kind.UNLIKE: "what is no state of the target's",
}


def _layer(layer: int, plan: Plan) -> str:
    if layer >= plan.layers:
        return f"behind the last layer, {plan.layers - 1}"
    return f"in front of layer {layer}"


def _and(values: object) -> str:
    *most, last = map(str, values)  # type: ignore[call-overload]
    return f"{', '.join(most)} and {last}" if most else str(last)


def _slots(slots: Sequence[int], verb: str) -> str:
    plural = len(slots) > 1
    return f"slot{'s' * plural} {_and(slots)} {verb}{'' if plural else 's'}"


def _wirings(
    states: States, plan: Plan, wanted: Layers, *, with_ids: bool
) -> list[Wiring]:
    """Those that put just these layers' states into the slots."""
    if not all(kinds(one) <= {Kind.RIGHT, Kind.LAYER} for one in states.slots):
        return []
    layers = states.layers()
    return [
        one
        for one in faults.wirings(plan, wanted, with_ids=with_ids)
        if one.layers == layers
    ]


def _faults(seen: set[Kind], where: str) -> list[Fault]:
    found: list[Fault] = []
    if Kind.PARTIAL in seen:
        found.append(faults.SHARDS)
    if Kind.ROWS in seen:
        if "prefill" in where:
            found += faults.UNSHIFTED
        found.append(faults.ROWS_AFTER if "verify" in where else faults.ROWS)
    return found
