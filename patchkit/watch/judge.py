"""Log lines, samples and answers by HTTP to a verdict. Pure: the clock is handed in."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from patchkit.watch import crash, hang, slow
from patchkit.watch.clock import LogClock
from patchkit.watch.events import Event, Kind, classify
from patchkit.watch.lines import Line, parse
from patchkit.watch.phases import Phases
from patchkit.watch.progress import Meter, Progress, measure, show_seconds
from patchkit.watch.stacks import Dump, Unmoving
from patchkit.watch.stall import Sample, Stall
from patchkit.watch.tracebacks import Collector
from patchkit.watch.verdict import Outcome, Verdict


class Until(str, Enum):
    READY = "ready"
    WEIGHTS = "weights"
    GRAPHS = "graphs"
    END = "end"  # goes on after ready


@dataclass(frozen=True)
class Settings:
    """``stall`` and ``timeout`` in seconds. ``request``: whether READY is only believed
    once a request was answered, within ``deadline`` seconds; ``url_given``: where to is
    the user's word, and not read from the log."""

    until: Until = Until.READY
    stall: float = 60.0
    timeout: float = 1800.0
    deadline: float = 20.0
    has_log: bool = True
    request: bool = True
    url_given: bool = False


@dataclass(frozen=True)
class Answer:
    """What an HTTP request came to. ``status`` 0: no answer; ``refused``: nobody
    listens; ``late``: not within the deadline."""

    path: str
    at: float
    seconds: float
    status: int = 0
    refused: bool = False
    late: bool = False
    error: str = ""


#: Seconds from the first sign of a crash in which its traceback, and those of other
#: ranks, may still come; and for which the log must then be silent.
GRACE = 1.2
SILENCE = 0.3
LONGEST_GRACE = 1.8
#: Requests that may find nobody before that counts.
TRIES = 3


class Judge:
    def __init__(self, settings: Settings, began: float) -> None:
        self.settings = settings
        self.began = began
        self.clock = LogClock()
        self.phases = Phases()
        self.tracebacks = Collector()
        self.meter = Meter()
        self.stall = Stall(began)
        self.unmoving = Unmoving()
        self.sample: Sample | None = None
        self.answers: dict[str, Answer] = {}
        self.dumps: tuple[Dump, ...] = ()
        self.dumped_at = 0.0
        #: the first line with which something gave up, and when it was seen
        self.failure: Line | None = None
        self.failed_at: float | None = None
        self.aftermath: list[Line] = []
        self.last_lines: deque[str] = deque(maxlen=20)
        #: rank -> how it ended, if that can be known
        self.gone: dict[str, int | None] = {}
        #: the rank that was gone while the server still lived
        self.first_gone: str | None = None
        self.confirmed = False
        self.failed_answers = 0
        self._unreachable = 0
        self.log_ended = False
        #: whether somebody asked the watch to end, of a server that is not ours
        self.interrupted = False
        self.notes: list[str] = []
        self._seen: dict[int, str] = {}
        self._last_line = began
        self._batches_at_request = 0

    # -- feeding ----------------------------------------------------------------------

    def feed(self, raw: str, now: float, *, fresh: bool = True) -> list[Event]:
        """A line of the log that was read ``now``; ``fresh`` if it was written now."""
        events = []
        for line in parse(raw):
            if self.clock.is_of_before(line, fresh):
                continue
            event = classify(line)
            if event.kind is Kind.ARGUMENTS and self.phases.spans:
                self._another_start()
            at, ahead = self.clock.time_of(line, now, fresh)
            if ahead:
                self.phases.shift(ahead)
            self.phases.feed(event, at)
            self.tracebacks.feed(line, at, event.kind is Kind.FAILURE)
            if event.kind is Kind.FAILURE and self.failure is None:
                self.failure = line
            if event.kind is Kind.AFTERMATH:
                self.aftermath.append(line)
            if event.kind in (Kind.FAILURE, Kind.AFTERMATH) and self.failed_at is None:
                self.failed_at = now
            if event.kind is not Kind.ACCESS and line.text:
                self.last_lines.append(line.text)
                self._last_line = now
            events.append(event)
        return events

    def feed_sample(self, sample: Sample) -> None:
        self.sample = sample
        self.meter.feed(sample)
        self.stall.feed(sample, self.phases.told)
        alive = {one.pid for one in sample.ranks if one.state != "Z"}
        ended = {one.pid: one.status for one in sample.ranks if one.state == "Z"}
        for pid, rank in self._seen.items():
            if pid not in alive and rank not in self.gone:
                self.gone[rank] = ended.get(pid)
                if sample.root and self.first_gone is None:
                    self.first_gone = rank
        self._seen = {one.pid: one.rank for one in sample.ranks if one.state != "Z"}
        if self.stall.frozen_since == sample.at and not self.troubled:
            self.dumps = ()
        if (self.gone or sample.root is False) and self.failed_at is None:
            self.failed_at = sample.at

    def feed_answer(self, answer: Answer) -> None:
        self.answers[answer.path] = answer
        if answer.path != "/generate":
            return
        working = self.phases.batches > self._batches_at_request
        if answer.status == 0 and not answer.late:
            self._unreachable += 1
            if self._unreachable >= TRIES and not self.settings.url_given:
                self._note(f"no request was tried: {answer.error}")
                self.confirmed = True
        elif answer.late and working:
            self._note("requests take long, but the engine is at work")
        elif answer.late or answer.status >= 500:
            self.failed_answers += 1
        else:
            self.confirmed = True
        if 400 <= answer.status < 500:
            self._note(
                f"the test request was refused ({answer.status}): {answer.error}"
            )

    def feed_dumps(self, dumps: Sequence[Dump], at: float) -> None:
        self.dumps = tuple(dumps)
        self.dumped_at = at
        self.stall.pass_over(self.phases.told)
        self.unmoving.feed(dumps, at)

    def end_of_log(self) -> None:
        self.log_ended = True
        self.tracebacks.close()

    # -- what it wants to know ---------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether the server says that it is ready."""
        if self.settings.has_log:
            return self.phases.ready is not None
        health = self.answers.get("/health")
        return health is not None and health.status == 200

    def request_sent(self) -> None:
        self._batches_at_request = self.phases.batches

    @property
    def troubled(self) -> bool:
        """Whether it says that it is ready and does not answer."""
        unreachable = self._unreachable >= TRIES and not self.confirmed
        return self.is_up and bool(self.failed_answers or unreachable)

    def wants_stacks(self, now: float, every: float) -> bool:
        """Whether the stacks are worth looking at (again, ``every`` seconds)."""
        stall = self.settings.stall
        if self.failed_at is not None or (self.is_up and not self.troubled):
            return False
        if self.troubled:
            return not self.dumps
        if self.quiet(now) >= stall:
            return self.dumped_at < self.stall.quiet_since
        frozen = now - self.stall.frozen_since >= stall
        return frozen and now - self.dumped_at >= every

    def quiet(self, now: float) -> float:
        return now - self.stall.quiet_since

    # -- deciding ---------------------------------------------------------------------

    def decide(self, now: float) -> Verdict | None:
        """The verdict once there is one."""
        if self.interrupted:
            return self._interrupted(now)
        if self.failed_at is not None:
            return self._after_failure(now)
        until = self.settings.until
        if until is Until.WEIGHTS and self.phases.weights_done():
            return self.verdict(
                Outcome.REACHED, "every rank has loaded its weights", now
            )
        if until is Until.GRAPHS and self.phases.graphs_done():
            return self.verdict(Outcome.REACHED, "every rank has its CUDA graphs", now)
        if self.is_up:
            return self._when_up(now)
        if self.phases.stopping or self.log_ended:
            return self._over(now)
        hung = hang.judge(self, now)
        if hung is not None:
            return hung
        if now - self.began >= self.settings.timeout:
            return slow.judge(self, now)
        return None

    def verdict(
        self, outcome: Outcome, says: str, now: float, **more: object
    ) -> Verdict:
        seen = measure(self.phases, self.meter, now)
        fields: dict[str, object] = {
            "phases": tuple(self.phases.durations(None if self.log_ended else now)),
            "phase": self.phases.label(),
            "fraction": seen.fraction,
            "eta": seen.eta,
            "notes": tuple(self.notes),
            "was_ready": self.is_up,
        }
        return Verdict(outcome, says, **(fields | more))  # type: ignore[arg-type]

    def progress(self, now: float) -> Progress:
        return measure(self.phases, self.meter, now)

    def _after_failure(self, now: float) -> Verdict | None:
        assert self.failed_at is not None
        waited = now - self.failed_at
        silent = now - self._last_line >= SILENCE
        over = self.log_ended or waited >= LONGEST_GRACE
        if not over and not (waited >= GRACE and silent):
            return None
        self.tracebacks.close()
        self.phases.close_all(self.phases.last)
        if self.phases.stopping and self.failure is None:
            return self._over(now)
        return crash.judge(self, now)

    def _when_up(self, now: float) -> Verdict | None:
        if self.troubled:
            return hang.judge_unhealthy(self, now)
        if self.settings.request and not self.confirmed:
            return self._over(now) if self.log_ended else None
        if self.settings.until is Until.END:
            return self._over(now) if self.phases.stopping or self.log_ended else None
        answer = self.answers.get("/generate")
        spent = f"; a request took {answer.seconds:.1f} s" if answer else ""
        if self.phases.began is not None and self.phases.ready is not None:
            took = show_seconds(self.phases.ready - self.phases.began)
            spent = f" after {took}{spent}"
        return self.verdict(Outcome.READY, f"the server is ready{spent}", now)

    def _interrupted(self, now: float) -> Verdict:
        was_ready = self.is_up and (self.confirmed or not self.settings.request)
        says = (
            f"the watch was asked to end, {self.phases.place()}; the server is left"
            " as it is"
        )
        return self.verdict(Outcome.STOPPED, says, now, was_ready=was_ready)

    def _over(self, now: float) -> Verdict | None:
        """It stops because it was asked to, or the log has ended."""
        ended = self.log_ended or (
            self.sample is not None and self.sample.root is False
        )
        if not ended:
            return None
        if self.is_up and not self.phases.stopping:
            return self.verdict(Outcome.READY, "the server got ready", now)
        lives = self.sample is None or self.sample.root is not False
        cried = any(one.bare for one in self.tracebacks.found)
        if lives and not cried and not self.phases.stopping:
            return slow.judge(self, now)
        self.phases.close_all(self.phases.last)
        if self.phases.stopping:
            says = "the server was asked to end, and ended"
            return self.verdict(Outcome.STOPPED, says, now)
        return crash.judge(self, now)

    # -- small ------------------------------------------------------------------------

    def _another_start(self) -> None:
        """The log goes on with another server: what was is forgotten."""
        self.phases, self.tracebacks, self.meter = Phases(), Collector(), Meter()
        self.failure = self.failed_at = None
        self.aftermath.clear()
        self.gone.clear()
        self.first_gone = None
        self._note("the log holds more than one start; this is about the last")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
