"""One tensor against what it should equal: captured, joined, taken by the draft."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchkit.logs.checks import Check, close, forward_text
from patchkit.logs.finding import Findings
from patchkit.logs.record import Record

#: Numbers that differ by less are of the same tensor: logs have six digits.
_SAME = 1e-5


@dataclass(frozen=True)
class Taken:
    """The draft's input, what the target had joined, and of how many states (0: not
    said)."""

    fc_in: Record
    joined: Record
    captured: int


class States(Check):
    """``compared`` and ``not_compared`` count tensors."""

    def __init__(self, findings: Findings, tolerance: float) -> None:
        super().__init__(findings, tolerance)
        self.compared = 0
        self.not_compared = 0

    def joined(self, record: Record, aux: list[Record]) -> None:
        """The states that were joined are those that were captured."""
        parts = record.fields.get("parts")
        if isinstance(parts, int) and parts != len(aux):
            self._add(
                "states-lost",
                f"{len(aux)} states were captured, but {parts} were joined",
                f"{forward_text(record)}: captured in front of layers"
                f" {_layers(aux)}; {record.site} joined {parts}.",
                "look between set_eagle3_layers_to_capture and the logits processor",
                record,
                *aux,
            )
            return
        norms = [one.norm for one in aux]
        if record.norm is None or None in norms or record.nonfinite:
            return
        if any(one.rows != record.rows for one in aux):
            # rows were pruned in between: then these are some of them
            self.not_compared += 1
            return
        self.compared += 1
        known = [norm for norm in norms if norm is not None]
        segments = record.segments
        if segments and len(segments) == len(known):
            self._same_segments("captured", known, segments, record, aux)
        elif not close(math.hypot(*known), record.norm, self._tolerance):
            self._add(
                "states-changed",
                "what was joined is not what was captured",
                f"{forward_text(record)}: the captured states have norm"
                f" {math.hypot(*known):.6g} together, what {record.site} joined"
                f" {record.norm:.6g}.",
                "a state was replaced, scaled or doubled on the way",
                record,
                *aux,
            )

    def captured(self, record: Record, stream: Mapping[int, Record]) -> None:
        """A captured state is the residual stream in front of its layer."""
        here = None if record.layer is None else stream.get(record.layer)
        if here is None or here.step != record.step or here.fields.get("partial"):
            return
        if (
            record.norm is None
            or here.norm is None
            or here.rows != record.rows
            or record.nonfinite
            or here.nonfinite
        ):
            self.not_compared += 1
            return
        self.compared += 1
        if close(record.norm, here.norm, self._tolerance):
            return
        same = [
            one.layer
            for one in stream.values()
            if one.norm is not None and close(record.norm, one.norm, _SAME)
        ]
        text = (
            f"{forward_text(record)}: norm {record.norm:.6g}; the stream in front of"
            f" layer {record.layer} has {here.norm:.6g}"
        )
        if same:
            text += f", and in front of layer {same[0]} this one"
        self._add(
            *("wrong-layer", f"the state called layer {record.layer} is another"),
            f"{text}.",
            "captured a layer early or late, or before the residual was added",
            *(record, here),
        )

    def taken(
        self, taken: Taken, joined: Sequence[Record], before: Taken | None
    ) -> None:
        """What the draft got holds what was joined, or (after verify) rows of it.

        ``joined``: the last of them; ``before``: what the draft got the time before.
        """
        record, pending = taken.fc_in, taken.joined
        got, joint = record.width, pending.width
        if got != joint:
            if got and joint and not self._one_state(record, pending):
                self._add(
                    "states-lost",
                    f"{joint} columns were joined, but the draft got {got}",
                    f"{forward_text(record)}: {record.site} is"
                    f" {record.shown_shape}; {forward_text(pending)} had joined"
                    f" {pending.shown_shape}.",
                    "a state was lost between the logits processor and the draft",
                    record,
                    pending,
                )
            return
        if (
            record.norm is None
            or pending.norm is None
            or record.rows is None
            or pending.rows is None
            or record.nonfinite
            or pending.nonfinite
            or self._counts_padding(record)
            or record.rows > pending.rows
        ):
            self.not_compared += 1
            return
        self.compared += 1
        if before is not None and _repeated(taken, before):
            self._add_stale(
                f"norm, mean and abs max are those of {forward_text(before.fc_in)},"
                " although the target has moved on",
                record,
                before.fc_in,
            )
            return
        if record.rows < pending.rows:
            # the accepted rows only
            for name in ("norm", "absmax"):
                some, every = getattr(record, name), getattr(pending, name)
                if (
                    some is not None
                    and every is not None
                    and some > every * (1 + self._tolerance)
                ):
                    self._disagree(
                        f"{record.rows} of the {pending.rows} rows have {name}"
                        f" {some:.6g}, all of them together {every:.6g}",
                        record,
                        pending,
                    )
                    return
            return
        ours, theirs = record.segments, pending.segments
        if ours and theirs and len(ours) == len(theirs):
            self._same_segments("joined", theirs, ours, record, [pending])
        elif not close(record.norm, pending.norm, self._tolerance):
            stale = self._stale(joined, record)
            if stale is not None:
                self._add_stale(
                    f"norm {record.norm:.6g} is that of {forward_text(stale)}; the"
                    f" last one, {forward_text(pending)}, has {pending.norm:.6g}",
                    *(record, pending, stale),
                )
            else:
                self._disagree(
                    f"norm {record.norm:.6g}, not {pending.norm:.6g}", record, pending
                )

    @staticmethod
    def _one_state(record: Record, pending: Record) -> bool:
        """Of k states only one arrived: fc is then skipped, and that is said."""
        parts = pending.fields.get("parts")
        return (
            isinstance(parts, int)
            and parts > 1
            and record.width == (pending.width or 0) // parts
        )

    @staticmethod
    def _counts_padding(record: Record) -> bool:
        """In a graph, rows that are all counted may be padding that nobody told of."""
        return bool(record.fields.get("captured")) and (
            record.shape is not None and record.rows == math.prod(record.shape[:-1])
        )

    @staticmethod
    def _stale(joined: Sequence[Record], record: Record) -> Record | None:
        for one in list(joined)[-2::-1]:
            if (
                one.rows == record.rows
                and one.norm is not None
                and record.norm is not None
                and close(one.norm, record.norm, _SAME)
            ):
                return one
        return None

    def _add_stale(self, text: str, record: Record, *others: Record) -> None:
        self._add(
            *("state-stale", "the draft got states of an earlier step"),
            f"{forward_text(record)}: {text}.",
            "a buffer was not refreshed, or is read before it is written",
            *(record, *others),
        )

    def _disagree(self, text: str, record: Record, pending: Record) -> None:
        self._add(
            "states-changed",
            "what the draft got is not what the target handed on",
            f"{forward_text(record)}: {record.site} has {text}"
            f" ({forward_text(pending)}).",
            "a state was lost, scaled or mixed up between the logits processor and"
            " the draft, or belongs to another step",
            record,
            pending,
        )

    def _same_segments(
        self,
        what: str,
        before: list[float],
        after: list[float],
        record: Record,
        others: list[Record],
    ) -> None:
        wrong = [
            number
            for number, (one, other) in enumerate(zip(before, after))
            if not close(one, other, self._tolerance)
        ]
        if not wrong:
            return
        order = self._order(before, after)
        shown = " ".join(f"{one:.6g}" for one in before)
        text = (
            f"{forward_text(record)}: the states have norms {shown} as {what}, but"
            f" {' '.join(f'{one:.6g}' for one in after)} in {record.site}."
        )
        if order is not None:
            text += f" The order is now {', '.join(str(one + 1) for one in order)}."
            self._add(
                *("states-reordered", "the states are in another order", text),
                "fc reads state j from column j * hidden on: order is all it has",
                *(record, *others),
            )
        else:
            which = ", ".join(str(one + 1) for one in wrong)
            self._add(
                *("states-changed", f"state {which} changed on its way", text),
                "a state was replaced, scaled or doubled on the way",
                *(record, *others),
            )

    def _order(self, before: list[float], after: list[float]) -> list[int] | None:
        """Where each of ``after`` was before, if it is a permutation."""
        left, order = list(range(len(before))), []
        for norm in after:
            for number in left:
                if close(before[number], norm, self._tolerance):
                    order.append(number)
                    left.remove(number)
                    break
            else:
                return None
        return order


def _layers(aux: list[Record]) -> str:
    return ", ".join("?" if one.layer is None else str(one.layer) for one in aux)


def _repeated(now: Taken, before: Taken) -> bool:
    """The draft's input is the last one's, to the digit, and the target's is not."""
    return _same(now.fc_in, before.fc_in) and not _same(now.joined, before.joined)


def _same(one: Record, other: Record) -> bool:
    pairs = [
        (one.norm, other.norm), (one.mean, other.mean), (one.absmax, other.absmax)
    ]  # fmt: skip
    return one.rows == other.rows and all(
        a is not None and b is not None and close(a, b, _SAME) for a, b in pairs
    )
