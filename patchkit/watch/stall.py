"""Is anything moving? Pure: samples in, seconds of quiet out.

*Quiet* is no line in the log, no CPU, no GPU, no bytes read and no memory gained, by
any rank or a process it started. A rank that waits for a CPU is not quiet: on a loaded
machine it may get little of it. *Frozen* is the same but for CPU and GPU: ranks that
spin in a collective burn both and get nowhere; whether they move, their stacks say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

#: Over this window (seconds) CPU time is summed, and below this share it is none: the
#: threads of an idle rank (collectives, watchdog, metrics) wake now and then.
WINDOW = 10.0
IDLE = 0.02
#: Seconds between samples beyond which the time does not count.
GAP = 3.0
#: Bytes of memory or of reading that are movement.
GAIN = 1 << 20


@dataclass(frozen=True)
class ProcessSample:
    """One process. ``cpu``: seconds that its busiest thread and what it started have
    used; ``total``: all of it; ``read``: bytes so far, by system calls or from the
    disk; ``memory``: resident bytes; ``state``: as in /proc ("T" stopped, "Z" ended),
    and "R" if a thread that works waits for a CPU."""

    rank: str
    pid: int
    cpu: float
    memory: int
    read: int
    state: str
    #: of it, seconds used by processes that it started (a compiler, say)
    helpers: float = 0.0
    #: how it ended, as os.wait says, if it has and that can be known
    status: int | None = None
    total: float = 0.0


@dataclass(frozen=True)
class Sample:
    """What the machine says at one moment. ``root``: whether the server's first process
    lives, ``None`` if that is not known; ``exit_code`` once it has ended, if that can
    be known; ``gpu``: percent of use of each GPU, ``None`` where there is no NVML;
    ``loaded``: of each rank, the bytes it has of the checkpoint at hand."""

    at: float
    root: bool | None
    ranks: tuple[ProcessSample, ...] = ()
    others: tuple[ProcessSample, ...] = ()
    exit_code: int | None = None
    gpu: tuple[int, ...] | None = None
    gpu_memory: int = 0
    loaded: tuple[tuple[str, int], ...] = ()
    checkpoint: int = 0
    checkpoint_name: str = ""

    @property
    def watched(self) -> tuple[ProcessSample, ...]:
        """The ranks; before there are any, every process of the server."""
        return self.ranks or self.others


class Stall:
    """Feed it samples and the count of log lines; ask since when nothing has moved."""

    def __init__(self, at: float) -> None:
        self.quiet_since = at
        self.frozen_since = at
        self._told = -1
        self._best: dict[int, tuple[int, int]] = {}
        self._gpu_memory = 0
        self._loaded = 0
        self._helpers = 0.0
        self._cpu: dict[int, float] = {}
        self._at = at
        #: (time, seconds since the one before, most CPU that a process used in it)
        self._used: deque[tuple[float, float, float]] = deque()

    def pass_over(self, told: int) -> None:
        """Lines up to here were of our own making: stacks that we asked for."""
        self._told = told

    def feed(self, sample: Sample, told: int) -> None:
        unseen = sample.at - self._at - GAP
        if unseen > 0:
            # time in which nobody looked (a loaded machine) is not quiet
            self.quiet_since += unseen
            self.frozen_since += unseen
        moved = told != self._told
        self._told = told
        loaded = sum(done for _, done in sample.loaded)
        moved |= loaded > self._loaded
        self._loaded = loaded
        moved |= sample.gpu_memory > self._gpu_memory + 16 * GAIN
        self._gpu_memory = max(self._gpu_memory, sample.gpu_memory)
        moved |= self._gained(sample.watched)
        helpers = sum(one.helpers for one in sample.watched)
        moved |= helpers > self._helpers + IDLE
        self._helpers = max(helpers, self._helpers)
        if moved:
            self.frozen_since = sample.at
        busy = self._last_busy(sample)
        self.quiet_since = max(self.quiet_since, self.frozen_since, busy)

    def _gained(self, processes: Iterable[ProcessSample]) -> bool:
        """Memory or bytes read beyond the most so far; or a process that is new."""
        moved = False
        for one in processes:
            memory, read = self._best.get(one.pid, (-GAIN, -GAIN))
            if one.memory >= memory + GAIN or one.read >= read + GAIN:
                moved = True
                self._best[one.pid] = (max(one.memory, memory), max(one.read, read))
        return moved

    def _last_busy(self, sample: Sample) -> float:
        """When CPU or GPU was last used for more than the odd wake-up; 0 if never."""
        lasted = sample.at - self._at
        most = max(
            (one.cpu - self._cpu.get(one.pid, one.cpu) for one in sample.watched),
            default=0.0,
        )
        self._at = sample.at
        self._cpu = {one.pid: one.cpu for one in sample.watched}
        self._used.append((sample.at, lasted, most))
        while self._used[0][0] <= sample.at - WINDOW:
            self._used.popleft()
        if any(sample.gpu or ()) or any(one.state == "R" for one in sample.watched):
            return sample.at
        total = sum(used for _, _, used in self._used)
        if total <= IDLE * sum(lasted for _, lasted, _ in self._used):
            return 0.0
        strong = [at for at, lasted, used in self._used if used > IDLE * lasted]
        return strong[-1] if strong else sample.at
