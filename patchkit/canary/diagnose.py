"""From what was measured to a verdict in words. Pure.

In this order: the target's own tokens, then whether all is right, then which digits the
draft misses (by the chart, else by the sets whose closed form fits), then what that
means (``faults``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchkit.canary import faults
from patchkit.canary.chart import Chart, State
from patchkit.canary.code import (
    BEFORE,
    MODULI,
    OWN,
    SLOTS,
    digits,
    means_number,
    next_token,
    number_at,
)
from patchkit.canary.faults import Fault
from patchkit.canary.meaning import meaning_of, nothing_accepted, parts_of
from patchkit.canary.measured import Answer, Measured
from patchkit.canary.plan import DRAFTS
from patchkit.canary.received import received_text
from patchkit.canary.states import States


@dataclass(frozen=True)
class Verdict:
    """``lost``: digits that the draft does not have, and what it takes them for, where
    that is what is wrong. ``faults`` share what was seen."""

    right: bool
    text: str
    lost: Mapping[int, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    evidence: tuple[str, ...] = field(default=())


def diagnose(measured: Measured) -> Verdict:
    found = _diagnosed(measured)
    if measured.states is None:
        return found
    # what is told by looking was looked at
    told = tuple(
        replace(one, tell="") if one.tell.startswith(faults.SEES) else one
        for one in found.faults
    )
    return replace(found, faults=told)


def _diagnosed(measured: Measured) -> Verdict:
    wrong = _target(measured.answers)
    if wrong is not None:
        return wrong
    fitting = measured.fitting()
    states = measured.states
    if {} in fitting and (states is None or states.arrived):
        return Verdict(True, "every candidate of every verify step is accepted")
    if states is not None and not states.right:
        return _states(measured, states, fitting)
    evidence = tuple(_evidence(measured, fitting))
    chart, intact = measured.chart, states is not None
    lost = _chosen(chart, fitting)
    if lost:
        text, found = meaning_of(lost, measured.plan, measured.draft, intact=intact)
        return Verdict(False, text, lost, tuple(found), evidence)
    if measured.nothing:
        found_all = nothing_accepted(chart, intact=intact)
        text = "no candidate is ever accepted"
        if len(found_all) == 1:
            text += f": probably {found_all[0].what}"
        elif not intact:
            text += ", so that the number names no slot"
        return Verdict(False, text, {}, found_all, evidence)
    return (
        _one_part(measured, evidence)
        or _later(measured, evidence)
        or _embedding(measured, evidence)
        or _shards(measured, evidence)
    )


def _states(
    measured: Measured, states: States, fitting: list[dict[int, int]]
) -> Verdict:
    """What is wrong was seen: there is nothing to be inferred from numbers."""
    plan, kind = measured.plan, DRAFTS[measured.draft]
    assert plan is not None  # else no state could have been judged
    text, found = received_text(states, plan, kind.layers(plan), with_ids=kind.with_ids)
    if {} in fitting:
        text = f"every candidate is accepted all the same, but {text}"
        return Verdict(False, text, {}, found)
    evidence = tuple(_evidence(measured, fitting))
    lost = _chosen(measured.chart, fitting) or {}
    return Verdict(False, text, lost, found, evidence)


def _one_part(measured: Measured, evidence: tuple[str, ...]) -> Verdict | None:
    """The states of prefill are right and those of decode are not, or the reverse."""
    later = measured.fitting_later()
    if later:
        text = "right in the first step, whose states are from prefill, and not then"
        lost = _chosen(None, later)
        return _part_of(measured, text, lost, faults.GRAPHS, evidence)
    first = measured.fitting_first()
    if first:
        text = "wrong in the first step only, whose states are from prefill"
        lost = _chosen(measured.chart, first)
        return _part_of(measured, text, lost, faults.PREFILL, evidence)
    return None


def _part_of(
    measured: Measured,
    text: str,
    lost: Mapping[int, int] | None,
    fault: Fault,
    evidence: tuple[str, ...],
) -> Verdict:
    if not lost:
        return Verdict(False, text, {}, (fault,), evidence)
    meaning, found = meaning_of(lost, measured.plan, measured.draft)
    return Verdict(False, f"{text}: {meaning}", lost, (fault, *found), evidence)


# -- the target ---------------------------------------------------------------------


def _target(answers: Sequence[Answer]) -> Verdict | None:
    """Each token against those in front of it, so that one fault is counted once."""
    bad: dict[int, int] = {}
    foreign = steps = 0
    first = ""
    for answer in answers:
        text = list(answer.prompt)
        for token in answer.tokens:
            steps += 1
            wanted = next_token(text[-2] if len(text) > 1 else text[-1], text[-1])
            text.append(token)
            if token == wanted:
                continue
            first = first or (
                f"after tokens {text[-3:-1]} came {token}, not {wanted}: number"
                f" {number_at(token)}, not {number_at(wanted)}"
            )
            if not means_number(token):
                foreign += 1
                continue
            for digit, (has, wants) in enumerate(
                zip(digits(number_at(token)), digits(number_at(wanted)))
            ):
                if has != wants:
                    bad[digit] = bad.get(digit, 0) + 1
    if not first:
        return None
    moduli = ", ".join(str(MODULI[digit]) for digit in sorted(bad))
    if foreign:
        what = "its tokens stand for no numbers"
        found: tuple[Fault, ...] = faults.TARGET_HEAD
    elif set(bad) == {BEFORE}:
        what = f"the digit modulo {moduli}, which its attention carries, is wrong"
        found = faults.TARGET_ATTENTION
    else:
        what = f"digits modulo {moduli} are wrong"
        found = faults.TARGET_MLP
        if BEFORE in bad:
            found += faults.TARGET_ATTENTION + faults.TARGET_HEAD
    count = foreign + max(bad.values(), default=0)
    evidence = (f"{count} of {steps} tokens are wrong", first)
    return Verdict(False, f"the target itself: {what}", {}, found, evidence)


# -- the draft ----------------------------------------------------------------------


def _later(measured: Measured, evidence: tuple[str, ...]) -> Verdict | None:
    """First candidates are right, others are not."""
    if measured.chart is None or measured.chart.lost() != {}:
        return None
    draft = DRAFTS.get(measured.draft)
    counts = measured.counts
    alone = bool(counts) and sum(counts) - counts[1] <= len(measured.answers)
    text = "first candidates are right, those of later draft steps are not"
    if draft is not None and draft.strict and alone:
        text += ": their positions are off"
        return Verdict(False, text, {}, faults.POSITIONS, evidence)
    seen = measured.states is not None
    found = tuple(one for one in faults.LATER if not seen or one != faults.SCALED)
    return Verdict(False, text, {}, found, evidence)


def _embedding(measured: Measured, evidence: tuple[str, ...]) -> Verdict | None:
    """The digits of the states are right, those of the draft's embedding not always."""
    if measured.chart is None:
        return None
    states = measured.chart.states()
    if {states[slot] for slot in SLOTS} != {State.RIGHT}:
        return None
    text = "the digits from the states are right, those from the draft's attention not"
    if State.PARTLY in states:
        text += f": {parts_of(measured.chart)}"
    found = (faults.SAME_PLACE, *faults.UNEVEN, *faults.UNSHIFTED)
    if states[OWN] is states[BEFORE] is State.PARTLY:
        found = (*faults.UNEVEN, faults.SAME_PLACE, *faults.UNSHIFTED)
    return Verdict(False, text, {}, found, evidence)


def _shards(measured: Measured, evidence: tuple[str, ...]) -> Verdict:
    """Some values of some digits, or nothing that has a form."""
    unseen = measured.states is None
    found = faults.PARTS if unseen else (faults.PARTS[0], *faults.UNEVEN[:1])
    if measured.tp > 1 and unseen:
        found = (faults.SHARDS, *found)
    chart = measured.chart
    text = "what is accepted is no closed form of lost digits"
    if chart is not None and State.PARTLY in chart.states():
        text = parts_of(chart)
    return Verdict(False, text, {}, found, evidence)


def _chosen(
    chart: Chart | None, fitting: Sequence[Mapping[int, int]]
) -> dict[int, int] | None:
    """What the chart says, if it fits. Without its word, where all fit the same digits,
    these; values that differ are UNKNOWN. Else None."""
    said = chart.lost() if chart is not None else None
    if said is not None:
        return said if said in fitting else None
    if chart is not None and ({State.PARTLY} & {*chart.states()} or chart.hopeless()):
        return None
    if len({tuple(one) for one in fitting}) != 1:
        return None
    return {
        digit: value if all(one[digit] == value for one in fitting) else faults.UNKNOWN
        for digit, value in fitting[0].items()
    }


def _evidence(measured: Measured, fitting: list[dict[int, int]]) -> list[str]:
    lines = []
    chart, states = measured.chart, measured.states
    if chart is not None and chart.digits[0].state is State.UNKNOWN:
        lines.append("no digit could be asked for by itself: nothing is guessed right")
    elif chart is not None:
        lines.append(
            "digits of first candidates: "
            + ", ".join(
                f"modulo {modulus} {state.value}"
                for modulus, state in zip(MODULI, chart.states())
            )
        )
    if states is not None and states.right:
        lines.append(
            "the captured states are right when the draft receives them, number by"
            " number: the fault lies behind"
        )
    if measured.nothing or (states is not None and not states.right):
        return lines  # the steps say nothing, or less than what was seen
    sets = dict.fromkeys(tuple(one) for one in fitting)
    for digits_lost in list(sets)[:3]:
        names = ", ".join(str(MODULI[digit]) for digit in digits_lost)
        lines.append(
            f"each answer's steps are just those of a draft without modulo {names}"
        )
    if not fitting:
        lines.append("no set of lost digits gives these steps")
    return lines
