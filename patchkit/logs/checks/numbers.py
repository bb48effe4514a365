"""NaN and Inf, and norms outside a layer's own history."""

from __future__ import annotations

from patchkit.logs.checks import forward_text
from patchkit.logs.finding import ERROR, WARNING, Finding, Findings
from patchkit.logs.record import Record
from patchkit.logs.table import History

#: Records of a layer before its history says anything.
HISTORY = 64
#: A row norm so many times outside everything seen before is outside.
OUTSIDE = 4.0


class NonFinite:
    """The first NaN or Inf, in the order of the log, and the sites that have any."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._counts: dict[str, int] = {}

    def see(self, record: Record) -> None:
        if not record.nonfinite:
            return
        if record.site in self._counts or len(self._counts) < 256:
            self._counts[record.site] = self._counts.get(record.site, 0) + 1
        if self._findings.again("non-finite", []):
            return
        layer = "" if record.layer is None else f", layer {record.layer}"
        self._findings.add(
            Finding(
                "non-finite",
                ERROR,
                f"NaN or Inf, first seen at {record.site}",
                f"{forward_text(record)}{layer}: {record.nonfinite} elements of"
                f" {record.shown_shape}.",
                [record.where],
                "what is in front of this site is finite: EAGLE3_DEBUG_SAVE keeps the"
                " tensor, -O layers=all narrows the layer down",
                *(record.site, record.step, record.rank),
            )
        )

    def finish(self) -> None:
        if self._counts:
            said = ", ".join(f"{site} {n:,}" for site, n in self._counts.items())
            self._findings.found[("non-finite",)].text += f" Records with it: {said}."


class Outside:
    """Row norms (RMS) outside their layer's history, in each forward mode apart."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def see(self, record: Record, row_norm: float, known: History) -> None:
        """Only where ``row_norm`` is beyond ``known``, which counts it already."""
        least, greatest = known.least, known.greatest
        if not row_norm:
            return
        if known.count > HISTORY and not (
            least / OUTSIDE <= row_norm <= greatest * OUTSIDE
        ):
            # does not become history
            self._outside(record, row_norm, known)
        else:
            known.least, known.greatest = min(least, row_norm), max(greatest, row_norm)

    def _outside(self, record: Record, row_norm: float, known: History) -> None:
        key = (record.site, record.layer)
        if self._findings.again("norm-outside", [record.where], *key):
            return
        layer = "" if record.layer is None else f" of layer {record.layer}"
        self._findings.add(
            Finding(
                "norm-outside",
                WARNING,
                f"a norm{layer} at {record.site} is outside its own history",
                f"{forward_text(record)}: {row_norm:.4g} a row (RMS); the"
                f" {known.count - 1:,} before it lay between {known.least:.4g} and"
                f" {known.greatest:.4g}.",
                [record.where],
                "more than 4 times outside; first tokens of a prompt can do that",
                *(record.site, record.step, record.rank),
            ),
            *key,
        )
