"""Which layers are captured: do they change, are they those of the draft's config?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from patchkit.logs.checks import forward_text
from patchkit.logs.draft import Draft
from patchkit.logs.finding import ERROR, NOTE, WARNING, Finding, Findings
from patchkit.logs.record import Note, Record

#: Different sets of layers that are kept, of all ranks.
_SETS = 1024
#: Ranks that are followed.
_RANKS = 4096


@dataclass
class _Seen:
    first: Record
    count: int = 0
    graphs: int = 0


class Captured:
    def __init__(self, findings: Findings, draft: Draft | None) -> None:
        self._findings = findings
        self._draft = draft
        self._open: dict[int, list[Record]] = {}
        #: a rank's layers -> ...; ranks of a pipeline have layers of their own
        self._seen: dict[tuple[int, tuple[int | None, ...]], _Seen] = {}
        self._in_features: Record | None = None
        self._lost = False

    def note(self, note: Note) -> None:
        self._lost = self._lost or note.event == "lost"

    def calls(self, kind: str) -> list[Callable[[Record], None]]:
        """What to call for the records of a site of this kind."""
        calls = {"aux": self._aux, "fc_in": self._fc_in}
        return [calls[kind]] if kind in calls else []

    def _aux(self, record: Record) -> None:
        one = self._open.get(record.rank)
        if one and one[0].step == record.step:
            if len(one) < 256:
                one.append(record)
            return
        # another server's steps begin anew, and the one before was cut anywhere
        if one and one[0].step < record.step:
            self._close(one)
        if one or len(self._open) < _RANKS:
            self._open[record.rank] = [record]

    def _fc_in(self, record: Record) -> None:
        if self._in_features is None and record.fields.get("in_features"):
            self._in_features = record

    def _close(self, records: list[Record]) -> None:
        first = records[0]
        key = (first.rank, tuple(one.layer for one in records))
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= _SETS:
                return
            seen = self._seen[key] = _Seen(first)
        seen.count += 1
        seen.graphs += bool(first.fields.get("captured"))

    def finish(self) -> None:
        for records in self._open.values():
            self._close(records)
        self._open.clear()
        by_rank: dict[int, list[tuple[tuple[int | None, ...], _Seen]]] = {}
        for (rank, layers), seen in self._seen.items():
            # the last forward of a log is cut anywhere, and so is one after a loss
            by_rank.setdefault(rank, []).append((layers, seen))
        for rank, sets in by_rank.items():
            if self._lost:
                sets = [one for one in sets if not _part_of(one, sets)]
            often = [one for one in sets if one[1].count > 1] or sets
            if len(often) > 1:
                self._changed(rank, often)
        if self._draft is not None:
            self._against(self._draft)

    def _changed(
        self, rank: int, sets: list[tuple[tuple[int | None, ...], _Seen]]
    ) -> None:
        graphs = [layers for layers, seen in sets if seen.graphs == seen.count]
        eager = [layers for layers, seen in sets if not seen.graphs]
        first = sets[0][1].first
        shown = "; ".join(
            f"{_text(one)} in {seen.count} forwards" for one, seen in sets
        )
        hint = "the layers are set once, before any forward: what changes them?"
        title = "the captured layers change from forward to forward"
        if graphs and eager:
            title = "CUDA graphs capture other layers than eager forwards"
            hint = (
                "releases up to 0.5.10.post1 set the draft's ids after the graphs were"
                " captured: patchkit verify --only capture-order"
            )
        where = [seen.first.where for _, seen in sets]
        if not self._findings.again("layers-change", where):
            self._findings.add(
                Finding(
                    *("layers-change", ERROR, title, f"rank {rank}: {shown}.", where),
                    *(hint, first.site, first.step, rank),
                )
            )

    def _against(self, draft: Draft) -> None:
        if self._in_features is not None:
            self._fc_fits(draft, self._in_features)
        if not self._seen:
            return
        # ranks of a pipeline hold parts: together they hold all
        counts: dict[tuple[int | None, ...], int] = {}
        for (_, layers), seen in self._seen.items():
            counts[layers] = counts.get(layers, 0) + seen.count
        most = max(counts, key=lambda one: (counts[one], len(one)))
        first = next(s.first for (_, one), s in self._seen.items() if one == most)
        if None in most:
            return
        verdict = draft.judge([layer for layer in most if layer is not None])
        severity = NOTE if verdict.fits else ERROR
        self._findings.add(
            Finding(
                "layer-ids" if not verdict.fits else "layer-ids-fit",
                severity,
                verdict.title,
                f"{forward_text(first)}: {verdict.text}",
                [first.where],
                *(verdict.hint, first.site, first.step, first.rank),
            )
        )

    def _fc_fits(self, draft: Draft, record: Record) -> None:
        expects = record.fields["in_features"]
        if draft.fc_width and expects != draft.fc_width:
            self._findings.add(
                Finding(
                    "widths",
                    WARNING,
                    f"fc takes {expects} columns, the draft's config says"
                    f" {draft.fc_width}",
                    f"{forward_text(record)}; {draft.fc_why}.",
                    [record.where],
                    "is this the draft that the server loaded?",
                    *(record.site, record.step, record.rank),
                ),
                "config",
            )


def _part_of(
    one: tuple[tuple[int | None, ...], _Seen],
    sets: list[tuple[tuple[int | None, ...], _Seen]],
) -> bool:
    """Whether these layers are some of another set's: a record of it was lost."""
    return any(set(one[0]) < set(other[0]) for other in sets)


def _text(layers: tuple[int | None, ...]) -> str:
    return "layers " + " ".join("?" if one is None else str(one) for one in layers)
