"""From what was measured to a verdict in words. Pure.

In this order: the target's own tokens, then whether all is right, then which digits the
draft misses (by the chart, else by the sets whose closed form fits), then what that
means (``faults``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from patchkit.canary.expect import accept_sequence, histogram, losses
from patchkit.canary.faults import Fault
from patchkit.canary.plan import DRAFTS, Plan


@dataclass(frozen=True)
class Answer:
    """To one prompt. ``verifies``: verify steps. ``counts``: how many of these accepted
    0, 1, ... candidates, up to the most that any did; empty where the release does not
    say. ``accepted``: what each accepted, where that is known."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    verifies: int
    counts: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()

    def histogram(self, steps: int) -> list[int]:
        return [*self.counts, *[0] * (steps + 1 - len(self.counts))]

    def fits(self, steps: int, lost: Mapping[int, int]) -> bool:
        """Whether it is what the closed form says. The last step may have been cut
        short by the number of tokens asked for."""
        full = accept_sequence(self.prompt, len(self.tokens), steps, lost)
        if not self.counts and not self.accepted:
            return self.verifies == len(full)
        for last in range(full[-1] + 1 if full else 0):
            one = [*full[:-1], last]
            if self.accepted:
                if list(self.accepted) == one:
                    return True
            elif self.histogram(steps) == histogram(one, steps):
                return True
        return not full and not self.verifies


@dataclass(frozen=True)
class Measured:
    """``draft``: which of the pair's drafts, by its folder's name; "" if unknown.
    ``chart``: of its guesses, if these were asked for."""

    steps: int
    answers: tuple[Answer, ...]
    draft: str = "draft"
    plan: Plan | None = None
    chart: Chart | None = None

    @property
    def counts(self) -> list[int]:
        """The histogram of all answers; empty if one has none."""
        if not all(one.counts for one in self.answers):
            return []
        every = [one.histogram(self.steps) for one in self.answers]
        return [sum(column) for column in zip(*every)]

    @property
    def mean(self) -> float:
        """Tokens a verify step."""
        verifies = sum(one.verifies for one in self.answers)
        tokens = sum(len(one.tokens) - 1 for one in self.answers)
        return tokens / verifies if verifies else 0.0

    def fitting(self) -> list[dict[int, int]]:
        """The ways to lose digits whose closed form is what was measured."""
        return [
            lost
            for lost in losses()
            if all(one.fits(self.steps, lost) for one in self.answers)
        ]


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
    wrong = _target(measured.answers)
    if wrong is not None:
        return wrong
    fitting = measured.fitting()
    if {} in fitting:
        return Verdict(True, "every candidate of every verify step is accepted")
    evidence = tuple(_evidence(measured, fitting))
    chart = measured.chart
    lost = chart.lost() if chart is not None else None
    if lost is None:
        lost = _common(fitting)
    if lost:
        text, found = _lost(measured, lost)
        if not fitting:
            text += "; not all of what was accepted is explained by that"
        return Verdict(False, text, lost, tuple(found), evidence)
    if lost == {}:
        return _later(measured, evidence)
    if measured.mean <= 1:
        text = "no candidate is ever accepted, so that the number names no slot"
        return Verdict(False, text, {}, _nothing(chart), evidence)
    if chart is not None and State.PARTLY in chart.states():
        return Verdict(False, _partly(chart), {}, (faults.SHARDS,), evidence)
    text = "what is accepted is no closed form of lost digits"
    return Verdict(False, text, {}, faults.LATER, evidence)


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


def _lost(measured: Measured, lost: Mapping[int, int]) -> tuple[str, list[Fault]]:
    slots = {digit: value for digit, value in lost.items() if digit in SLOTS}
    others = tuple(digit for digit in lost if digit not in SLOTS)
    texts: list[str] = []
    found: list[Fault] = []
    if slots:
        text, found = _slots(measured, slots)
        texts.append(text)
    if others == (OWN, BEFORE):
        texts.append("nothing of the draft's own embedding gets through its attention")
        found = [*found, *faults.EMBEDDING]
    elif others == (BEFORE,):
        texts.append("the draft's attention does not see the position before")
        found = [*found, *faults.HISTORY]
    elif others:
        texts.append("the draft's attention does not see its own position")
        found = [*found, *faults.OWN_POSITION]
    return "; ".join(texts), found


def _slots(measured: Measured, slots: Mapping[int, int]) -> tuple[str, list[Fault]]:
    plan, draft = measured.plan, DRAFTS.get(measured.draft)
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
    if plan is None or draft is None:
        return text, [Fault("with --pair OUT the layers can be named")]
    wanted = draft.layers(plan)
    layers = " and ".join(str(wanted[slot]) for slot in slots)
    text += f" (made for: in front of {layers})"
    same = [
        Fault(one.what, one.tell)
        for one in faults.wirings(plan, wanted, with_ids=draft.with_ids)
        if faults.agree(one.taken(wanted), slots)
    ]
    if same:
        text += f": probably {same[0].what}"
    if len(slots) == 1:
        ((slot, value),) = slots.items()
        same += faults.one_slot(slot, value, plan.layers)
    return text, same


def _later(measured: Measured, evidence: tuple[str, ...]) -> Verdict:
    draft = DRAFTS.get(measured.draft)
    counts = measured.counts
    alone = bool(counts) and sum(counts) - counts[1] <= len(measured.answers)
    text = "first candidates are right, those of later draft steps are not"
    if draft is not None and draft.strict and alone:
        return Verdict(
            False,
            text + ": their positions are off",
            {},
            faults.POSITIONS,
            evidence,
        )
    return Verdict(False, text, {}, faults.LATER, evidence)


def _nothing(chart: Chart | None) -> tuple[Fault, ...]:
    """Those that the candidates' digits point to, if they were seen."""
    if chart is None or not any(one.offsets for one in chart.digits):
        return faults.NOTHING if chart is None or not chart.foreign else faults.FOREIGN
    if chart.foreign:
        return faults.FOREIGN
    behind = {
        digit
        for digit, one in enumerate(chart.digits)
        if one.offsets == {MODULI[digit] - 1}
    }
    if set(SLOTS) <= behind:
        return faults.NO_RESIDUAL
    if behind == {OWN, BEFORE}:
        return faults.UNSHIFTED
    return faults.NOTHING


def _partly(chart: Chart) -> str:
    parts = [
        f"modulo {MODULI[digit]} only {', '.join(map(str, sorted(one.right)))}"
        for digit, one in enumerate(chart.digits)
        if one.state is State.PARTLY
    ]
    return "of some digits the draft knows a part of the values: " + "; ".join(parts)


def _common(fitting: Sequence[Mapping[int, int]]) -> dict[int, int] | None:
    """Where all fit the same digits. Values that differ are UNKNOWN."""
    if not fitting or len({tuple(one) for one in fitting}) > 1:
        return None
    return {
        digit: value if all(one[digit] == value for one in fitting) else faults.UNKNOWN
        for digit, value in fitting[0].items()
    }


def _evidence(measured: Measured, fitting: list[dict[int, int]]) -> list[str]:
    lines = []
    if measured.chart is not None and measured.chart.digits[0].state is State.UNKNOWN:
        lines.append("no digit could be asked for by itself: nothing is guessed right")
    elif measured.chart is not None:
        lines.append(
            "digits of first candidates: "
            + ", ".join(
                f"modulo {modulus} {state.value}"
                for modulus, state in zip(MODULI, measured.chart.states())
            )
        )
    sets = dict.fromkeys(tuple(one) for one in fitting)
    for digits_lost in list(sets)[:3]:
        names = ", ".join(str(MODULI[digit]) for digit in digits_lost)
        lines.append(
            f"each answer's steps are just those of a draft without modulo {names}"
        )
    if not fitting:
        lines.append("no set of lost digits gives these steps")
    return lines
