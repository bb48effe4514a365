"""How much CPU a server uses. Pure."""

from __future__ import annotations

from patchkit.watch.stall import Sample


class CpuUse:
    """``percent`` of one CPU between the last two samples, of the processes that were
    there in both; ``None`` before there are two."""

    def __init__(self) -> None:
        self.percent: float | None = None
        self._at = 0.0
        self._used: dict[int, float] = {}

    def feed(self, sample: Sample) -> None:
        used = {one.pid: one.total for one in (*sample.ranks, *sample.others)}
        gained = [
            max(0.0, used[pid] - self._used[pid]) for pid in used if pid in self._used
        ]
        if gained and sample.at > self._at:
            self.percent = 100 * sum(gained) / (sample.at - self._at)
        self._at, self._used = sample.at, used
