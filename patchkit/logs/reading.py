"""Records in, a report out. No files and no printing: ``files`` brings the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from patchkit.logs.checks.captured import Captured
from patchkit.logs.checks.flow import Flow
from patchkit.logs.checks.numbers import NonFinite, Outside
from patchkit.logs.checks.ranks import Ranks
from patchkit.logs.checks.spoke import Spoke
from patchkit.logs.draft import Draft
from patchkit.logs.finding import ERROR, WARNING, Finding, Findings
from patchkit.logs.landmarks import Landmarks
from patchkit.logs.plotted import Plotted
from patchkit.logs.record import Note, Record
from patchkit.logs.stream import Counts
from patchkit.logs.table import Row, Table

#: Relative difference of norms up to which they are the same: logs have six digits, and
#: ranks and devices add up in another order.
TOLERANCE = 1e-3
_JOINED = ("aux", "concat", "fc_in", "fc_out", "layer")

See = Callable[[Record], None]


class _Place(NamedTuple):
    """What records about the same have in common here. ``row``: None if too many."""

    row: Row | None
    variant: Any
    history: Any
    calls: tuple[See, ...]


@dataclass(frozen=True)
class Options:
    tolerance: float = TOLERANCE
    draft: Draft | None = None
    plot: bool = False


@dataclass
class Report:
    """What was read, and what became of it."""

    files: dict[str, list[Counts]]
    rows: list[Row]
    findings: list[Finding]
    ranks: list[int]
    #: of each model: first and last step
    steps: dict[str, tuple[int, int]]
    #: tensors that were compared with what they should equal, and could not be
    compared: dict[str, int]
    saved: list[dict[str, Any]] = field(default_factory=list)
    plotted: Plotted | None = None

    def total(self, name: str) -> int:
        return sum(getattr(one, name) for many in self.files.values() for one in many)

    @property
    def failed(self) -> bool:
        return any(one.severity == ERROR for one in self.findings)


class Reading:
    """Looks at records one at a time; ``finish`` once, when there are no more."""

    def __init__(self, options: Options) -> None:
        self.findings = Findings()
        self.table = Table()
        self.plotted = Plotted() if options.plot else None
        self._spoke = Spoke(self.findings)
        self._flow = Flow(self.findings, options.tolerance)
        self._ranks = Ranks(self.findings, options.tolerance)
        self._captured = Captured(self.findings, options.draft)
        self._nonfinite = NonFinite(self.findings)
        self._outside = Outside(self.findings)
        self._saved: list[dict[str, Any]] = []

    def see(self, batch: Iterable[Record | Note]) -> None:
        for one in batch:
            if type(one) is Note:
                self._note(one)
                continue
            assert type(one) is Record
            place = one.about.place
            if place is None:
                place = self._place(one)
            row, history = place.row, place.history
            if row is not None:
                row.variants[place.variant] += 1
                row_norm = row.add(one)
                if row_norm is not None:
                    history.count += 1
                    if not history.least <= row_norm <= history.greatest:
                        self._outside.see(one, row_norm, history)
            if one.nonfinite:
                self._nonfinite.see(one)
            for see in place.calls:
                see(one)
        self.table.settle()

    def _place(self, record: Record) -> _Place:
        """Where records like this belong, and what looks at them: found once."""
        about, kind = record.about, record.kind
        calls: list[See] = self._flow.calls(kind) + self._captured.calls(kind)
        if kind in _JOINED:
            calls += self._ranks.calls(record)
        if self.plotted is not None:
            calls.append(self.plotted.see)
        row = self.table.row(record)
        variant = history = None
        if row is not None:
            variant = row.variant(about)
            history = row.history(about.fields.get("mode"))
        place = about.place = _Place(row, variant, history, tuple(calls))
        return place

    def _note(self, note: Note) -> None:
        self._spoke.note(note)
        self._flow.note(note)
        self._captured.note(note)
        if note.event == "saved" and len(self._saved) < 4096:
            self._saved.append(dict(note.fields))

    def finish(
        self, files: dict[str, list[Counts]], heads: Sequence[bytes], cut: Sequence[str]
    ) -> Report:
        """``heads``: the first bytes of logs; ``cut``: files that ended too early."""
        landmarks = Landmarks()
        for head in heads:
            landmarks.add(head)
        rows = self.table.sorted()
        ranks = sorted(set().union(*(row.ranks for row in rows)))
        self._nonfinite.finish()
        self._captured.finish()
        self._ranks.finish()
        self._spoke.finish(rows, ranks, landmarks)
        self._bad_lines(files, cut)
        return Report(
            files,
            rows,
            self.findings.sorted(),
            ranks,
            _steps(rows),
            {
                "states": self._flow.states.compared,
                "states_not_comparable": self._flow.states.not_compared,
                "between_ranks": self._ranks.compared,
            },
            self._saved,
            self.plotted,
        )

    def _bad_lines(self, files: dict[str, list[Counts]], cut: Sequence[str]) -> None:
        bad = [one for many in files.values() for one in many if one.bad]
        if bad:
            count = sum(one.bad for one in bad)
            shown = [pair for one in bad for pair in one.first_bad]
            reasons = dict.fromkeys(why for _, why in shown)
            self.findings.add(
                Finding(
                    "bad-lines",
                    WARNING,
                    f"{count} lines look like a tap's and can't be read",
                    f"{'; '.join(list(reasons)[:4])}.",
                    [where for where, _ in shown],
                    "they are left out of everything above",
                    count=count,
                )
            )
        for text in cut:
            self.findings.add(Finding("cut", WARNING, text, "", []), text)


def _steps(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        model = row.model or row.site.partition(".")[0]
        first, last = row.first_step, row.last_step
        known = found.get(model, (first, last))
        found[model] = (min(first, known[0]), max(last, known[1]))
    return found
