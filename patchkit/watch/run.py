"""Watches a server until there is a verdict: the loop, and nothing of the judging."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.errors import UsageError
from patchkit.watch import dumping
from patchkit.watch.address import port_of
from patchkit.watch.asking import Asking, Due
from patchkit.watch.child import Child
from patchkit.watch.extras import need
from patchkit.watch.follow import Log, LogFile, open_log
from patchkit.watch.judge import Judge
from patchkit.watch.lines import last_stamp
from patchkit.watch.locate import find_server, log_of, open_tree
from patchkit.watch.options import Options, View, needs
from patchkit.watch.processes import Tree
from patchkit.watch.reached import ready_says
from patchkit.watch.sampling import SAMPLE, Sampler
from patchkit.watch.settings import Until
from patchkit.watch.signals import caught
from patchkit.watch.status import Status, status_of
from patchkit.watch.verdict import Outcome, Verdict
from patchkit.watch.writers import is_full, is_written
from patchkit.watch.zone import zone_skew

#: Seconds between looks at the log, for a server, for who writes
#: the log of one that is not found.
TICK, SEARCH, WRITERS = 0.1, 1.0, 2.0


class Watch:
    def __init__(self, options: Options, view: View) -> None:
        self.options = options
        self.view = view
        self._wall, self._began = time.time(), time.monotonic()
        self.judge = Judge(options.settings, self._wall)
        self.child: Child | None = None
        #: whether the server that we started was ended by us
        self.was_ended = False
        self.tree: Tree | None = None
        self.sampler = Sampler(options.settings.stall / 4)
        self.asking = Asking(self.judge, self._find_url, options.key, self._clock)
        self._offered: list[int] = []
        self._due = Due()
        self._announced = self._hurry = False
        self.log_path: Path | None = None
        self._log: Log | None = None

    # -- the loop ---------------------------------------------------------------------

    def run(self) -> Verdict:
        """Until there is a verdict. A server that we started ends with us, unless it
        got to where it should, or ``keep``."""
        with caught(self._on_signal):
            verdict = None
            try:
                self._start()
                while verdict is None:
                    self._step()
                    verdict = self.judge.decide(self._clock())
                    if verdict is None:
                        time.sleep(TICK)
                self.view.decided(verdict)
                return verdict
            finally:
                self._end(verdict)

    def _start(self) -> None:
        options = self.options
        self._log = self._open()
        if self.tree is not None:
            self._know_start(self.tree)
        else:
            self._learn_zone(None)
        has_log = self._log is not None
        self.judge.settings = replace(options.settings, has_log=has_log)
        until = options.settings.until
        if until in (Until.WEIGHTS, Until.GRAPHS) and not has_log:
            raise UsageError(
                f"--until {until.value} is read from the log, and there is none",
                hint="give --log",
            )

    def _step(self) -> None:
        now = self._clock()
        if self.tree is None and self._due("search", SEARCH):
            self._search()
        self._read_log(limit=0.5)
        if self.tree is None:
            self._look_for_writers()
        if self._due("sample", SAMPLE):
            self._sample()
        self.asking.step()
        if self.judge.wants_stacks(now, max(1.0, self.judge.settings.stall / 4)):
            self._take_stacks()
        goes_on = self.judge.settings.until is Until.END
        if goes_on and self.judge.is_confirmed and not self._announced:
            self._announced = True
            self.view.ready(ready_says(self.judge))
        seen = status_of(
            self.judge, self._wall, self.sampler.cpu.percent, self._clock()
        )
        self.view.status(seen)

    def _clock(self) -> float:
        """Wall time that never jumps."""
        return self._wall + time.monotonic() - self._began

    # -- the log ----------------------------------------------------------------------

    def _open(self) -> Log | None:
        options = self.options
        if options.command:
            name = options.log or f"patchkit-watch-{os.getpid()}.log"
            self.log_path = Path(name).absolute()
            self.child = Child(options.command, self.log_path)
            self.view.say(f"started process {self.child.pid}, log {self.log_path}")
            log = LogFile(self.log_path, self.view.log, self.child.log_began)
            self.tree = Tree(self.child.pid)
            return log
        if options.pid:
            self.tree = open_tree(options.pid)
        if options.log:
            opened = open_log(options.log)
            if isinstance(opened, LogFile):
                self.log_path = opened.path
            if opened.waiting:
                self.view.say(f"there is no {options.log} yet; it is waited for")
            return opened
        if options.pid:
            found = log_of(options.pid)
            if found is not None:
                self.log_path = found
                self.view.say(f"its log is {found}")
                return LogFile(found)
        return None

    def _read_log(self, limit: float) -> list[str]:
        """Feed what came to the judge; the lines."""
        if self._log is None:
            return []
        found: list[str] = []
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            lines, fresh = self._log.read()
            for raw in lines:
                offered = dumping.offered_by(raw)
                if offered is not None:
                    self._offered.append(offered)
                for event in self.judge.feed(raw, self._clock(), fresh=fresh):
                    self.view.event(event)
            found += lines
            if not lines:
                break
        if self._log.ended and not self.judge.log_ended:
            self.judge.end_of_log()
        return found

    # -- the processes ----------------------------------------------------------------

    def _search(self) -> None:
        """Find the server, if nobody said which process it is."""
        identity = self._log.identity() if self._log is not None else None
        pid = find_server(identity, self._port())
        if pid is None:
            return
        try:
            self.tree = open_tree(pid)
        except UsageError:  # it ended meanwhile
            return
        self._know_start(self.tree)
        self.view.say(f"the server is process {pid}")

    def _look_for_writers(self) -> None:
        """Of a log whose server is not found: is it over, or only out of sight?"""
        judge, now = self.judge, self._clock()
        silent = now - judge.last_line >= WRITERS
        if self._log is None or not silent or not self._due("writers", WRITERS):
            return
        path = self.log_path
        judge.feed_writing(is_written(path) if path is not None else True, now)

    def _know_start(self, tree: Tree) -> None:
        if self._log is None or isinstance(self._log, LogFile):
            self.judge.clock.not_before = tree.started - 2.0
        self._learn_zone(tree.root.pid)
        self.judge.phases.started(tree.started)

    def _learn_zone(self, pid: int | None) -> None:
        """The log's stamps are local time of the server, which may not be ours."""
        # of a server that we start every line is seen as it is written
        if isinstance(self._log, LogFile) and self.child is None:
            data, written = self._log.before()
            stamp = last_stamp(data)
            if stamp is not None:
                zone = zone_skew(pid, stamp) if pid is not None else None
                self.judge.phases.shift(self.judge.clock.guess(stamp, written, zone))

    def _port(self) -> int:
        if self.options.url:
            return port_of(self.options.url)
        told = self.judge.phases.arguments
        return told.port if told is not None else 0

    def _sample(self) -> None:
        if self.tree is None:
            return
        judge = self.judge
        # not once the weights are there
        weights = not judge.phases.graphs_done()
        sample = self.sampler.look(
            self.tree, self.child, self._clock(), weights=weights
        )
        if self.log_path is not None:
            judge.log_is_full = is_full(self.log_path)
        judge.feed_sample(sample)

    def _take_stacks(self) -> None:
        sample = self.judge.sample
        if self.tree is None or sample is None:
            return
        whom = {one.pid: one.rank for one in sample.watched if one.state != "Z"}
        stopped = [one.pid for one in sample.watched if one.state == "T"]
        if not self.judge.dumps:
            self.view.say("nothing moves: taking the stacks of all ranks")

        def read_log() -> list[str]:
            return self._read_log(0.5)

        reader = read_log if self._log is not None else None
        dumps = dumping.take(whom, self._offered, reader, stopped)
        self.judge.feed_dumps(dumps, self._clock())

    def _find_url(self) -> str:
        """The user's word, else what the log of a server says that was found."""
        told = self.judge.phases.arguments
        if self.options.url:
            return self.options.url
        if told is None or not told.port or self.tree is None:
            return ""
        return f"http://127.0.0.1:{told.port}"

    # -- the end ----------------------------------------------------------------------

    def _on_signal(self, number: int, count: int) -> None:
        """A server that we started gets the signals that we get, and ends us with it;
        a second signal does not wait for that."""
        self._hurry = count > 1
        if self.child is None or self._hurry:
            ended = self.child is not None and not self.options.keep
            self.judge.interrupted = "is ended" if ended else "is left as it is"
            return
        self.judge.phases.stopping = True
        self.child.signal(signal.SIGTERM if number == signal.SIGHUP else number)

    def _end(self, verdict: Verdict | None) -> None:
        if self._log is not None:
            self._read_log(0.5)
            self._log.close()
        if self.child is None or self.options.keep:
            return
        reached = verdict is not None and verdict.outcome in (
            Outcome.READY,
            Outcome.REACHED,
        )
        if reached and self.judge.settings.until is not Until.END:
            return
        self.was_ended = self.child.exit_code is None
        others = self.tree.processes() if self.tree is not None else ()
        self.child.end(others, patient=lambda: not self._hurry)


def watch(options: Options, view: View) -> tuple[Verdict, Watch]:
    """Watch until there is a verdict. Raises UsageError and CannotRun."""
    needs(options)
    # before anything is started
    need("psutil", "look at the server's processes")
    watching = Watch(options, view)
    return watching.run(), watching


__all__: Sequence[str] = ("Options", "Status", "View", "Watch", "watch")
