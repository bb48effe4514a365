"""When a line was written: by its own stamp, a neighbour's, or ours. Pure."""

from __future__ import annotations

from patchkit.watch.lines import Line

#: Seconds by which a line just written may be stamped otherwise than now.
DIFFER = 5.0


class LogClock:
    """Feed it every line in order. ``not_before``: lines of the log from before this
    are of an earlier server."""

    def __init__(self) -> None:
        self.not_before = 0.0
        self._now = 0.0
        self._skew = 0.0
        self._old = False

    def is_of_before(self, line: Line, fresh: bool) -> bool:
        """Whether an old line is older than the server that is watched."""
        if fresh:
            self._old = False
        elif line.stamp is not None:
            self._old = line.stamp < self.not_before
        return self._old

    def time_of(self, line: Line, now: float, fresh: bool) -> tuple[float, float]:
        """Seconds since the epoch, 0 if that can't be said; and by how much what was
        said of earlier lines must be shifted: a server elsewhere has its own clock."""
        if line.stamp is None:
            self._now = now if fresh else self._now
            return self._now, 0.0
        ahead = now - (line.stamp + self._skew)
        if not fresh or abs(ahead) <= DIFFER:
            ahead = 0.0
        self._skew += ahead
        self._now = line.stamp + self._skew
        return self._now, ahead
