"""Ranks of one tensor-parallel group hold the same states: do they say the same?

Records are joined by model, step, site and layer, while they are among the last
``STEPS`` steps of their model. Ranks whose row counts differ work on different batches
(data-parallel attention) and are not compared; nor are partial sums.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Any

from patchkit.logs.checks import close
from patchkit.logs.finding import ERROR, NOTE, Finding, Findings
from patchkit.logs.record import Record

STEPS = 512
#: Records of one step that are kept, at most.
_SITES = 1024


class Ranks:
    def __init__(self, findings: Findings, tolerance: float) -> None:
        self._findings = findings
        self._tolerance = tolerance
        #: (group, model, step) -> {(site, layer) -> (the first rank's, ranks seen)}
        self._steps: OrderedDict[Any, dict[Any, tuple[Record, set[int]]]] = (
            OrderedDict()
        )
        #: the last records while only one rank has spoken; None after that
        self._alone: deque[Record] | None = deque(maxlen=_SITES)
        #: pairs of ranks that were seen to hold different batches
        self._apart: dict[tuple[int, int], tuple[Record, Record]] = {}
        self._differing: list[tuple[Record, Record]] = []
        self.compared = 0

    def see(self, record: Record) -> None:
        if self._alone is not None:
            # a single rank has nobody to agree with: only its last forward is kept
            self._alone.append(record)
            if record.rank == self._alone[0].rank:
                return
            kept, self._alone = self._alone, None
            for one in kept:
                self.see(one)
            return
        if record.norm is None or record.fields.get("partial"):
            return
        model = record.model or record.site.partition(".")[0]
        key = (record.prefix.group, model, record.step)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = {}
            if len(self._steps) > STEPS:
                self._steps.popitem(last=False)
        what = (record.site, record.layer)
        known = step.get(what)
        if known is None:
            if len(step) < _SITES:
                step[what] = (record, {record.rank})
            return
        first, ranks = known
        if record.rank in ranks:
            # said twice in one forward, or another run appended to the log
            if record.rank == first.rank:
                step[what] = (record, {record.rank})
            return
        ranks.add(record.rank)
        if (first.shape, first.rows) != (record.shape, record.rows):
            if len(self._apart) < 64:
                pair = (first.rank, record.rank)
                self._apart.setdefault(pair, (first, record))
            return
        self.compared += 1
        first_norm = first.norm or 0.0
        if (
            not close(first_norm, record.norm, self._tolerance)
            and len(self._differing) < 4096
        ):
            self._differing.append((first, record))

    def finish(self) -> None:
        differing = [
            (one, other)
            for one, other in self._differing
            if (one.rank, other.rank) not in self._apart
        ]
        if differing:
            self._disagree(differing)
        if self._apart:
            (_, rank), (first, second) = next(iter(self._apart.items()))
            self._findings.add(
                Finding(
                    "ranks-apart",
                    NOTE,
                    "ranks hold different batches, and are not compared",
                    f"step {first.step} of {first.site}: {first.shown_shape} on rank"
                    f" {first.rank}, {second.shown_shape} on rank {rank}. Data-parallel"
                    " attention does that.",
                    [first.where, second.where],
                    *("", first.site, first.step, rank),
                )
            )

    def _disagree(self, differing: list[tuple[Record, Record]]) -> None:
        first, other = differing[0]
        layer = "" if first.layer is None else f", layer {first.layer}"
        counts = Counter(one.site for one, _ in differing)
        said = ", ".join(f"{site} {count:,}" for site, count in counts.items())
        finding = Finding(
            "ranks-disagree",
            ERROR,
            f"ranks disagree, first at {first.site}",
            f"step {first.step}{layer}, {first.shown_shape}: norm {first.norm:.6g} on"
            f" rank {first.rank}, {other.norm:.6g} on rank {other.rank}. Pairs that"
            f" differ: {said}.",
            [one.where for pair in differing[:2] for one in pair],
            "states captured before a deferred all-reduce are partial sums (all-reduce"
            " fusion, releases 0.5.4.post2 to 0.5.13.post1): patchkit verify --only"
            " fusion; else a rank has other weights",
            *(first.site, first.step, other.rank),
            count=len(differing),
            of=self.compared,
        )
        self._findings.add(finding)
