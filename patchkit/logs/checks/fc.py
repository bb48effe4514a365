"""Widths that don't fit, and ``fc`` skipped where it should have run."""

from __future__ import annotations

from patchkit.logs.checks import Check, forward_text
from patchkit.logs.checks.states import Taken
from patchkit.logs.record import Record

_WIDTHS = (
    "the draft's config.json (hidden_size, the number of layer ids) and fc's weight"
)


class Fc(Check):
    def joined(self, record: Record) -> None:
        """``record``: the tensor that the target made of its states."""
        widths, width = record.fields.get("widths"), record.width
        parts = record.fields.get("parts")
        if parts == 0:
            self._add(
                "nothing-captured",
                "no state was captured",
                f"{forward_text(record)}: {record.site} was called without any state.",
                "the capture is on, but no layer is in layers_to_capture of this rank",
                record,
            )
        elif widths and len(set(widths)) > 1:
            self._add(
                "widths",
                "states of different widths were joined",
                f"{forward_text(record)}: {'+'.join(map(str, widths))} columns.",
                "one of them is no hidden state of the target",
                record,
            )
        elif widths and width and width != sum(widths):
            self._add(
                "widths",
                "what was joined is not as wide as its parts",
                f"{forward_text(record)}: {'+'.join(map(str, widths))} columns went in,"
                f" {width} came out.",
                "look at the concatenation in logits_processor.py",
                record,
            )

    def out(self, record: Record, fc_in: Record | None, taken: Taken | None) -> None:
        """``taken``: None where the draft rightly has one state, or nobody knows."""
        fc, expects = record.fields.get("fc"), record.fields.get("in_features")
        hidden = record.shape[-1] if record.shape else None
        got = fc_in.width if fc_in is not None else None
        if expects and hidden and fc == "applied" and expects % hidden:
            self._add(
                "widths",
                "fc does not take a whole number of states",
                f"{forward_text(record)}: fc takes {expects} columns and"
                f" gives {hidden}.",
                f"the draft is not made for this target: compare {_WIDTHS}",
                record,
            )
        if fc == "applied" and expects and got and got != expects:
            self._add(
                "widths",
                f"fc takes {expects} columns, but got {got}",
                f"{forward_text(record)}.",
                f"compare {_WIDTHS}",
                record,
                *([fc_in] if fc_in else []),
            )
        if fc != "skipped" or not record.rows or expects in (None, hidden):
            return
        mode = record.fields.get("mode")
        if taken is not None:
            pending = taken.joined
            captured = taken.captured or pending.fields.get("parts") or "several"
            self._add(
                "fc-skipped",
                f"fc was skipped although {captured} states were captured"
                if captured != 1
                else "only one state was captured, so fc was skipped",
                f"{forward_text(record)}: the draft got {record.shown_shape}, fc takes"
                f" {expects} columns; {forward_text(pending)} had joined"
                f" {pending.shown_shape}.",
                "a single state reaches the draft (widths match, so SGLang says"
                " nothing): patchkit verify --target DIR shows where; the accept"
                " length is about 1 until then",
                taken.fc_in,
                record,
                pending,
            )
        elif mode is not None and "EXTEND" in str(mode).upper():
            self._add(
                "fc-skipped",
                "fc was skipped in a forward that takes the target's states",
                f"{forward_text(record)}, mode {mode}: the draft got"
                f" {record.shown_shape}, fc takes {expects} columns.",
                "the target handed on one state instead of several",
                record,
            )
