# patchkit: tap
"""A daemon thread that turns a device's records into lines, and never asks the device.

No CUDA call is made here: one from another thread can break a capture that is under
way. Reading memory is enough, see ``ring``.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from . import emit
from .calls import Call, Calls
from .ring import Record, Ring
from .settings import Settings
from .voice import Voice

_TICK = 1024e-9
_BUSY, _IDLE = 0.001, 0.02
_BATCH = 16
_MOST_VOICES = 4096
_MOST_PARTS = 64
_TELL_LOSS_EVERY = 1.0


class Saves(Protocol):
    def collect(self, call: Call, number: int, record: Record) -> None: ...

    def finish(self, calls: Calls) -> None: ...


class Clock:
    """A GPU's microsecond counter, modulo 2**32, as seconds since the epoch.

    A record is seen after it was made: the least difference between the two clocks,
    over the last minutes, is the offset. Drift between the clocks is followed.
    """

    def __init__(self, window: float = 120.0) -> None:
        self._window = window
        self._since = 0.0
        self._older = self._newer = math.inf

    def read(self, ticks: int, seen: float) -> tuple[float, float]:
        """(GPU seconds, wall seconds) of a record seen at wall time ``seen``."""
        offset = min(self._older, self._newer)
        gpu = ticks * _TICK
        if math.isfinite(offset):
            lap = (1 << 32) * _TICK
            gpu += round((seen - offset - gpu) / lap) * lap
        if seen - self._since > self._window:
            self._older, self._newer, self._since = self._newer, math.inf, seen
        self._newer = min(self._newer, seen - gpu)
        return gpu, gpu + min(self._older, self._newer)


@dataclass
class Lane:
    """One ring and what is needed to understand it. ``owner`` keeps its memory."""

    ring: Ring
    calls: Calls
    saves: Saves
    timed: bool
    owner: object
    clock: Clock = field(default_factory=Clock)
    voices: dict[tuple[int, int, int], Voice] = field(default_factory=dict)
    parts: dict[tuple[int, int], list[Record]] = field(default_factory=dict)
    # Steps of models that turned out to be warm-ups.
    idle: dict[str | None, int] = field(default_factory=dict)
    told: int = 0
    told_at: float = 0.0


class Reader:
    """Reads all lanes of a process. Records of warm-ups are dropped."""

    def __init__(self, settings: Settings, json: emit.JsonLines) -> None:
        self._settings = settings
        self._json = json
        self._lanes: list[Lane] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._written: dict[int, bytes] = {}
        self.failures = 0

    def add(self, lane: Lane) -> None:
        self._lanes.append(lane)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="patchkit-tap", daemon=True
            )
            self._thread.start()

    def flush(self, *, wait: float = 5.0, final: bool = False) -> None:
        """Say what is in the rings. ``final``: also what stands behind a hole."""
        # The lock may be held by the very thread that a signal handler interrupted.
        if not self._lock.acquire(timeout=wait):
            return
        try:
            for lane in self._lanes:
                while self._drain(lane) or (final and lane.ring.skip_hole()):
                    pass
                self._tell_loss(lane, now=True)
                if final:
                    lane.saves.finish(lane.calls)
        finally:
            self._lock.release()

    def _run(self) -> None:
        pause = _BUSY
        while True:
            time.sleep(pause)
            busy = False
            # Nothing of ours may end the thread, or print a traceback of it.
            with contextlib.suppress(Exception):
                while self._some():
                    busy = True
                    # Let the server have the interpreter.
                    time.sleep(0)
            pause = _BUSY if busy else min(pause * 1.5, _IDLE)

    def _some(self) -> bool:
        """Say a few records of each lane; whether there were some."""
        busy = False
        with self._lock:
            for lane in list(self._lanes):
                busy |= self._drain(lane)
                self._tell_loss(lane, now=False)
        return busy

    def _drain(self, lane: Lane) -> bool:
        """Whether there was something."""
        seen = time.time()
        count = 0
        for record in lane.ring.read(_BATCH):
            count += 1
            try:
                self._take(lane, record, seen)
            except Exception as error:
                self.failures += 1
                if self.failures == 1:
                    with contextlib.suppress(Exception):
                        text = f"a record was not said: {type(error).__name__}: {error}"
                        emit.say("ring", text, level=logging.WARNING)
        written, self._written = self._written, {}
        for rank, data in written.items():
            self._json.write(rank, data)
        return count > 0

    def _take(self, lane: Lane, record: Record, seen: float) -> None:
        call = lane.calls.get(record.call)
        if call is None:
            return
        gpu, when = lane.clock.read(record.ticks, seen) if lane.timed else (None, seen)
        if call.warmup or self._is_idle(lane, call, record):
            return
        records = self._complete(lane, call, record)
        if not records:
            return
        if call.save:
            lane.saves.collect(call, record.call, record)
        if not self._settings.wants_step(record.step):
            return
        for group in [records] if call.joined else [[one] for one in records]:
            self._say(lane, call, group, gpu, when)

    @staticmethod
    def _complete(lane: Lane, call: Call, record: Record) -> list[Record]:
        """The records of all segments, once the last one is there: any may be it."""
        if call.segments == 1:
            return [record]
        key = (record.call, record.step)
        parts = lane.parts.setdefault(key, [])
        parts.append(record)
        if len(parts) < call.segments:
            while len(lane.parts) > _MOST_PARTS:
                # The rest of it was overwritten before it was read.
                lane.parts.pop(next(iter(lane.parts)))
            return []
        del lane.parts[key]
        return sorted(parts, key=lambda one: one.segment)

    @staticmethod
    def _is_idle(lane: Lane, call: Call, record: Record) -> bool:
        """No real row: a warm-up that nobody announced, or an idle batch."""
        if call.counted and record.rows == 0:
            lane.idle[call.model] = record.step
            return True
        return not call.counted and lane.idle.get(call.model) == record.step

    def _say(
        self,
        lane: Lane,
        call: Call,
        records: Sequence[Record],
        gpu: float | None,
        when: float,
    ) -> None:
        one = records[0]
        key = (one.call, one.segment, one.total)
        voice = lane.voices.get(key)
        if voice is None:
            if len(lane.voices) >= _MOST_VOICES:
                lane.voices.clear()
            voice = Voice(call, one.segment, one.total, timed=lane.timed)
            lane.voices[key] = voice
        json = self._settings.directory is not None
        line, data = voice.speak(records, gpu, when, json=json)
        emit.say(call.site, line)
        if json:
            self._written[call.rank] = self._written.get(call.rank, b"") + data

    def _tell_loss(self, lane: Lane, *, now: bool) -> None:
        count = lane.ring.lost - lane.told
        moment = time.monotonic()
        if not count or (not now and moment - lane.told_at < _TELL_LOSS_EVERY):
            return
        lane.told, lane.told_at = lane.ring.lost, moment
        text = (
            f"lost {count} records: the GPU was faster than the reader; fewer sites"
            " (EAGLE3_DEBUG_SITES) or a larger ring (EAGLE3_DEBUG_RING) help"
        )
        emit.say("ring", text, level=logging.WARNING)
        if self._settings.directory is not None:
            rank = emit.global_rank()
            fields = {"count": count, "total": lane.ring.lost}
            self._json.write(rank, emit.event("ring", "lost", None, rank, fields))
