"""What the digits that a draft lacks mean, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from patchkit.canary import faults
from patchkit.canary.chart import Chart, State
from patchkit.canary.code import BEFORE, EARLY, LATE, MODULI, OWN, SLOTS
from patchkit.canary.faults import Fault
from patchkit.canary.plan import DRAFTS, Plan

FEW_ROWS = 8


def meaning_of(
    lost: Mapping[int, int], plan: Plan | None, draft: str, *, intact: bool = False
) -> tuple[str, list[Fault]]:
    """Of digits, and what they are taken for; ``draft``: its folder's name; ``intact``:
    the states were seen, and are right. With the faults that share it."""
    if len(lost) == len(MODULI):
        text = "the draft guesses one number, always the same: it learns nothing"
        return text, list(faults.LEARNS_NOTHING[1 if intact else 0 :])
    slots = {digit: value for digit, value in lost.items() if digit in SLOTS}
    others = tuple(digit for digit in lost if digit not in SLOTS)
    texts: list[str] = []
    found: list[Fault] = []
    if slots and intact:
        *most, last = map(str, slots)
        names = f"slots {', '.join(most)} and {last}" if most else f"slot {last}"
        texts.append(f"what fc makes of {names} is lost, though the states are right")
        each = [Fault(faults.FC_SLOT.format(n), "patchkit check-draft") for n in slots]
        found = [faults.FC_LAYERS, *each] if each[1:] else [*each, faults.FC_LAYERS]
    elif slots:
        text, found = _slots(slots, plan, draft)
        texts.append(text)
    if others == (OWN, BEFORE):
        texts.append("nothing of the draft's own embedding gets through its attention")
        found = [*found, *faults.EMBEDDING, faults.SAME_PLACE]
    elif others == (BEFORE,):
        texts.append("the draft's attention does not see the position before")
        found = [*found, *faults.HISTORY]
    elif others:
        texts.append("the draft's attention does not see its own position")
        found = [*found, *faults.OWN_POSITION]
    return "; ".join(texts), found


def _slots(
    slots: Mapping[int, int], plan: Plan | None, draft: str
) -> tuple[str, list[Fault]]:
    kind = DRAFTS.get(draft)
    states: dict[str, list[int]] = {}
    for slot, value in slots.items():
        states.setdefault(faults.of_a_slot(slot, value), []).append(slot)
    parts = []
    for what, those in states.items():
        names = " and ".join(map(str, those))
        receive = (
            f"slots {names} receive states"
            if those[1:]
            else (f"slot {names} receives a state")
        )
        parts.append(f"{receive} {what}")
    text = "; ".join(parts)
    if plan is None or kind is None:
        return text, [Fault("with --pair OUT the layers can be named")]
    wanted = kind.layers(plan)
    layers = " and ".join(str(wanted[slot]) for slot in slots)
    text += f" (made for: in front of {layers})"
    wirings = [
        one
        for one in faults.wirings(plan, wanted, with_ids=kind.with_ids)
        if faults.agree(one.taken(wanted), slots)
    ]
    # elsewhere the value does not say which layer's state it is
    exact = all(value in (LATE, EARLY) for value in slots.values())
    if wirings:
        sure = exact and wirings[0].sure and len(wirings) == 1
        text += f": {'probably' if sure else 'may be'} {wirings[0].what}"
    same = [Fault(one.what, one.tell) for one in wirings]
    if len(slots) == 1:
        ((slot, value),) = slots.items()
        same += faults.one_slot(slot, value, plan.layers)
    return text, same


def nothing_accepted(chart: Chart | None, *, intact: bool = False) -> tuple[Fault, ...]:
    """Those that the candidates' digits point to, if they were seen. ``intact``: the
    states were seen, and are right."""
    if chart is None or not any(one.offsets for one in chart.digits):
        if chart is not None and chart.foreign:
            return faults.FOREIGN
        return faults.NOTHING
    if chart.foreign:
        return faults.FOREIGN
    behind, by = set(), set()
    for digit, one in enumerate(chart.digits):
        offsets = {offset % MODULI[digit] for offset in one.offsets}
        if offsets == {MODULI[digit] - 1}:
            behind.add(digit)
        by |= {(digit, offset) for offset in offsets}
    # any five offsets are those of some number of rows: only few rows are plausible
    for rows in (*range(1, FEW_ROWS + 1), *range(-FEW_ROWS, 0)):
        if by == {(digit, rows % modulus) for digit, modulus in enumerate(MODULI)}:
            return faults.ROW_OFF
    if set(SLOTS) <= behind:
        return (*(() if intact else faults.NO_RESIDUAL), *faults.NO_MLP,
                faults.NO_LAYER)  # fmt: skip
    if behind == {OWN, BEFORE}:
        return faults.UNSHIFTED
    if intact:
        return faults.LEARNS_NOTHING[1:]
    return (faults.ROWS, faults.SCALED, *faults.LEARNS_NOTHING[:2])


def parts_of(chart: Chart) -> str:
    """Which values of digits are guessed right."""
    parts = [
        f"modulo {MODULI[digit]} only {', '.join(map(str, sorted(clean)))}"
        for digit, one in enumerate(chart.digits)
        if one.state is State.PARTLY and (clean := one.right - one.wrong)
    ]
    if not parts:
        return "each digit of the draft's guesses is right at times, and not always"
    return "of some digits the draft knows a part of the values: " + "; ".join(parts)
