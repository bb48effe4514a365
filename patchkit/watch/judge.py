"""Log lines, samples and answers by HTTP to a verdict. Pure: the clock is handed in."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from patchkit.watch import crash, gone, hang, reached, slow, unhealthy
from patchkit.watch.answers import Answer, Answers
from patchkit.watch.clock import LogClock
from patchkit.watch.events import Event, Kind, classify
from patchkit.watch.lines import Line, parse
from patchkit.watch.phases import Phases
from patchkit.watch.progress import Meter, Progress, measure
from patchkit.watch.settings import Settings, Until
from patchkit.watch.stacks import Dump, Unmoving
from patchkit.watch.stall import Sample, Stall
from patchkit.watch.tracebacks import Collector
from patchkit.watch.verdict import Outcome, Verdict

#: Seconds from the first sign of a crash in which its traceback, and those of other
#: ranks, may still come; and for which the log must then be silent.
GRACE = 1.2
SILENCE = 0.3
LONGEST_GRACE = 1.8


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
        self.answers = Answers(sure=bool(settings.url))
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
        self.log_ended = False
        #: since when no process was seen to write the log; whether all were looked at
        self.unwritten_since: float | None = None
        self.surely_unwritten = False
        #: whether its log can't be written for want of room
        self.log_is_full = False
        #: what becomes of the server, once somebody asked the watch to end
        self.interrupted = ""
        self.notes: list[str] = []
        self._seen: dict[int, str] = {}
        self.last_line = began
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
                self.last_line = now
            events.append(event)
        return events

    def feed_sample(self, sample: Sample) -> None:
        self.sample = sample
        self.meter.feed(sample, self.phases.drafting())
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
        working = self.phases.batches > self._batches_at_request
        self.answers.feed(answer, working)
        if not self.settings.has_log and self.answers.healthy:
            self.phases.answers(answer.at)

    def feed_writing(self, written: bool | None, now: float) -> None:
        """Of a log whose server is not found: does a process write it?"""
        if written:
            self.unwritten_since = None
            if self.is_up:
                self.answers.untried(
                    "the server was not found; --url http://host:port says where it is"
                )
        elif self.unwritten_since is None:
            self.unwritten_since = now
        self.surely_unwritten = written is False

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
        return self.phases.ready is not None

    @property
    def is_confirmed(self) -> bool:
        """Whether it is ready, and that is believed."""
        believed = self.answers.confirmed or not self.settings.request
        return self.is_up and believed

    def request_sent(self) -> None:
        self._batches_at_request = self.phases.batches

    @property
    def troubled(self) -> bool:
        """Whether it says that it is ready and does not answer."""
        return self.is_up and self.answers.troubled

    def wants_stacks(self, now: float, every: float) -> bool:
        """Whether the stacks are worth looking at (again, ``every`` seconds)."""
        stall = self.settings.stall
        if self.failed_at is not None or (self.is_up and not self.troubled):
            return False
        if self.troubled:
            # an answer that says what is wrong needs none
            return not self.dumps and not self.answers.latest["/generate"].status
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
        early = (reached.judge_on_the_way, unhealthy.judge_other, gone.judge)
        for one in early:
            found = one(self, now)
            if found is not None:
                return found
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
        if self.log_is_full and "cause" not in more:
            self._note("the disk of the log is full: lines may be missing from it")
        fields: dict[str, object] = {
            "phases": tuple(self.phases.durations(None if self.log_ended else now)),
            "phase": self.phases.label(),
            "fraction": seen.fraction,
            "eta": seen.eta,
            "notes": (*self.notes, *self.answers.notes),
            "was_ready": self.is_up,
        }
        return Verdict(outcome, says, **(fields | more))  # type: ignore[arg-type]

    def progress(self, now: float) -> Progress:
        return measure(self.phases, self.meter, now)

    def _after_failure(self, now: float) -> Verdict | None:
        assert self.failed_at is not None
        waited = now - self.failed_at
        silent = now - self.last_line >= SILENCE
        over = self.log_ended or waited >= LONGEST_GRACE
        if not over and not (waited >= GRACE and silent):
            return None
        self.tracebacks.close()
        self.phases.over = True
        if self.phases.stopping and self.failure is None:
            return self._over(now)
        return crash.judge(self, now)

    def _when_up(self, now: float) -> Verdict | None:
        if self.troubled:
            return unhealthy.judge(self, now)
        if not self.is_confirmed:
            if self.log_ended:
                return self._over(now)
            late = now - self.began >= self.settings.timeout
            return slow.judge_unanswered(self, now) if late else None
        if self.settings.until is Until.END:
            return self._over(now) if self.phases.stopping or self.log_ended else None
        return reached.judge_ready(self, now)

    def _interrupted(self, now: float) -> Verdict:
        place, left = self.phases.place(), self.interrupted
        says = f"the watch was asked to end, {place}; the server {left}"
        return self.verdict(Outcome.STOPPED, says, now, was_ready=self.is_confirmed)

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
        self.phases.over = True
        if self.phases.stopping:
            says = "the server was asked to end, and ended"
            return self.verdict(Outcome.STOPPED, says, now)
        return crash.judge(self, now)

    # -- small ------------------------------------------------------------------------

    def _another_start(self) -> None:
        """The log goes on with another server: what was is forgotten."""
        self.phases, self.tracebacks, self.meter = Phases(), Collector(), Meter()
        self.answers = Answers(sure=bool(self.settings.url))
        self.failure = self.failed_at = None
        self.aftermath.clear()
        self.gone.clear()
        self.first_gone = None
        self._note("the log holds more than one start; this is about the last")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
