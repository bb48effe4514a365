"""How far, and how long still. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from patchkit.watch.events import Stage
from patchkit.watch.phases import Phases
from patchkit.watch.spans import DRAFT
from patchkit.watch.stall import Sample

#: Seconds over which the rate is taken.
RECENT = 60.0


@dataclass(frozen=True)
class Progress:
    """``fraction`` of the phase at hand, ``None`` if it has none; ``eta`` in seconds;
    ``counted`` as in "58/163 shards"; ``least`` and ``most`` of any rank."""

    fraction: float | None = None
    eta: float | None = None
    counted: str = ""
    least: float | None = None
    most: float | None = None


class Meter:
    """Bytes of a checkpoint that the ranks have, over time."""

    def __init__(self) -> None:
        self.name = ""
        self.total = 0
        #: whether it is the draft's
        self.drafting = False
        self.loaded: dict[str, int] = {}
        self._history: deque[tuple[float, float]] = deque()

    def feed(self, sample: Sample, drafting: bool = False) -> None:
        """``drafting``: whether a rank has begun to load the draft."""
        if (sample.checkpoint_name, sample.checkpoint) != (self.name, self.total):
            self.name, self.total = sample.checkpoint_name, sample.checkpoint
            self.drafting = drafting
            self.loaded = {}
            self._history.clear()
        if not self.total:
            return
        for rank, done in sample.loaded:
            self.loaded[rank] = max(done, self.loaded.get(rank, 0))
        self._history.append((sample.at, self.fraction))
        while sample.at - self._history[0][0] > RECENT:
            self._history.popleft()

    @property
    def fraction(self) -> float:
        """The mean over the ranks: each goes through the whole checkpoint."""
        if not self.loaded:
            return 0.0
        return min(1.0, sum(self.loaded.values()) / len(self.loaded) / self.total)

    @property
    def eta(self) -> float | None:
        if len(self._history) < 2:
            return None
        (then, before), (now, after) = self._history[0], self._history[-1]
        if after <= before or now <= then:
            return None
        return (1.0 - after) * (now - then) / (after - before)

    def spread(self) -> tuple[float, float]:
        shares = [min(1.0, one / self.total) for one in self.loaded.values()]
        return min(shares), max(shares)


def measure(phases: Phases, meter: Meter, now: float) -> Progress:
    """What is known of the phase at hand: bytes by the ranks before the log's bar."""
    bar = phases.bar
    label = phases.label()
    counted, fraction, eta = "", None, None
    if bar is not None and bar.total and label == bar.label:
        unit = {Stage.WEIGHTS: "shards", Stage.GRAPHS: "batches"}.get(bar.stage, "")
        counted = f"{bar.done}/{bar.total} {unit}".strip()
        fraction = bar.done / bar.total
        if bar.done > bar.first:
            # from the last step on, the time that passes is progress on the next one
            pace = (bar.at - bar.began) / (bar.done - bar.first)
            eta = max(0.0, pace * (bar.total - bar.done) - (now - bar.at))
    loading = label.startswith(Stage.WEIGHTS.value) or label == Stage.START.value
    # the draft's files are not those of the target, which are all there by then
    loading &= meter.drafting == label.endswith(DRAFT)
    if not (loading and meter.total and meter.loaded):
        return Progress(fraction, eta, counted)
    by_bytes = meter.fraction
    if fraction is not None and fraction >= by_bytes:
        # files that came and went unseen; or all are mapped, and work goes on
        return Progress(fraction, eta, counted)
    if fraction is not None and fraction < 1 and by_bytes >= 1:
        return Progress(fraction, eta, counted)
    size = f"{show_bytes(by_bytes * meter.total)} of {show_bytes(meter.total)}"
    counted = f"{counted}, {size}" if counted else size
    return Progress(by_bytes, meter.eta or eta, counted, *meter.spread())


def show_bytes(count: float) -> str:
    units = ["B", "KB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop(0)
    digits = 0 if count >= 100 or units[0] == "B" else 1
    return f"{count:.{digits}f} {units[0]}"


def show_seconds(seconds: float) -> str:
    """As in "8 s", "3 min 20 s", "1 h 05 min", "3 days"."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole >= 2 * 86400:
        return f"{whole // 86400} days"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
