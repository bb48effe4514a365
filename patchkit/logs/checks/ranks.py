"""Ranks of one tensor-parallel group hold the same states: do they say the same?

Records are joined by model, step, site and layer, while they are among the last
``STEPS`` steps of their model. Ranks whose row counts differ work on different batches
(data-parallel attention) and are not compared; nor are partial sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from patchkit.logs.checks import close
from patchkit.logs.finding import ERROR, NOTE, Finding, Findings
from patchkit.logs.record import Record

STEPS = 512
#: Sites and layers that are compared, at most.
_SITES = 1024


class Ranks:
    def __init__(self, findings: Findings, tolerance: float) -> None:
        self._findings = findings
        self._tolerance = tolerance
        #: group, model, site, layer -> step -> the record of the rank that came first
        self._steps: dict[Any, dict[int, Record]] = {}
        #: pairs of ranks that were seen to hold different batches
        self._apart: dict[tuple[int, int], tuple[Record, Record]] = {}
        self._differing: list[tuple[Record, Record]] = []
        self.compared = 0

    def calls(self, record: Record) -> list[Callable[[Record], None]]:
        """What to call for records about the same as this one."""
        about = record.about
        if about.fields.get("partial"):
            return []
        key = (about.group, record.said_model, about.site, about.layer)
        steps = self._steps.get(key)
        if steps is None:
            steps = {}
            if len(self._steps) < _SITES:
                self._steps[key] = steps

        def see(record: Record) -> None:
            first = steps.get(record.step)
            if first is None:
                steps[record.step] = record
                if len(steps) > STEPS:
                    del steps[next(iter(steps))]
            elif first.about.rank != record.about.rank:
                self._compare(first, record)
            else:
                # another run appended to the log
                steps[record.step] = record

        return [see]

    def _compare(self, first: Record, record: Record) -> None:
        one, other = first.norm, record.norm
        if one is None or other is None:
            return
        if first.rows != record.rows or first.shape != record.shape:
            if len(self._apart) < 64:
                pair = (first.rank, record.rank)
                self._apart.setdefault(pair, (first, record))
            return
        self.compared += 1
        if one == other or close(one, other, self._tolerance):
            return
        if len(self._differing) < 4096:
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
