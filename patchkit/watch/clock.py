"""When a line was written: by its own stamp, a neighbour's, or ours. Pure.

SGLang's stamps are local time of the server, and name no zone; ``lines`` reads them as
ours. What must be added to them, the skew, is learned: from the zone of the server's
process and the time at which its log was last written, and then from the first line
that is seen as it is written. No line is seen before it was written, so the skew only
shrinks from then on: what comes in a burst was written before it came.
"""

from __future__ import annotations

import math

from patchkit.watch.lines import Line

#: Seconds by which a line just written may be stamped otherwise than now.
DIFFER = 5.0
#: Zones differ by quarters of an hour, nearly all by halves; and at most by so much.
QUARTER, HALF, MOST = 900.0, 1800.0, 26 * 3600.0


class LogClock:
    """Feed it every line in order. ``not_before``: lines of the log from before this
    are of an earlier server."""

    def __init__(self) -> None:
        self.not_before = 0.0
        self._now = 0.0
        self._skew = 0.0
        self._sure = False
        self._old = False

    @property
    def at(self) -> float:
        """When the last line was written; 0 if that can't be said."""
        return self._now

    def guess(self, stamp: float, written: float, zone: float | None) -> float:
        """The skew, from the last ``stamp`` in a log that was last ``written`` then;
        ``zone``: what the zone of the server's process makes of it, if that is known.
        By how much what was said of earlier lines must be shifted."""
        if self._sure:
            return 0.0
        before, late = self._skew, written - stamp
        if zone is not None and late >= zone - DIFFER:
            self._skew = zone
        elif abs(late) < MOST:
            # after its last stamped line it wrote others
            self._skew = HALF * math.floor((late + DIFFER) / HALF)
        return self._skew - before

    def is_of_before(self, line: Line, fresh: bool) -> bool:
        """Whether an old line is older than the server that is watched."""
        if fresh:
            self._old = False
        elif line.stamp is not None:
            self._old = line.stamp + self._skew < self.not_before
        return self._old

    def time_of(self, line: Line, now: float, fresh: bool) -> tuple[float, float]:
        """Seconds since the epoch, 0 if that can't be said; and by how much what was
        said of earlier lines must be shifted."""
        if line.stamp is None:
            self._now = now if fresh else self._now
            return self._now, 0.0
        before, late = self._skew, now - line.stamp - self._skew
        if late < -1.0 or (fresh and not self._sure and late > DIFFER):
            self._skew = _whole_zones(now - line.stamp)
        self._sure |= fresh
        at = line.stamp + self._skew
        if fresh and line.stamp == int(line.stamp):
            # the second began then, and the line was seen in it or later
            at += 0.999
        self._now = min(at, now)
        return self._now, self._skew - before


def _whole_zones(late: float) -> float:
    whole = QUARTER * round(late / QUARTER)
    return whole if abs(late - whole) <= DIFFER else late
