"""Which question the server is asked, and when."""

from __future__ import annotations

import time
from collections.abc import Callable

from patchkit.watch.judge import Judge
from patchkit.watch.probe import CHEAP, SOON, Probe

#: Seconds between looks at /health, or two tries; and between two requests to a server
#: that is watched after it got ready.
HEALTH, AGAIN = 2.0, 30.0


class Due:
    """What is done now and then: ``due("x", 2.0)`` is true at most every 2 seconds."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def __call__(self, what: str, every: float) -> bool:
        now = time.monotonic()
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + every
        return True

    def put_off(self, what: str, seconds: float) -> None:
        self._next[what] = time.monotonic() + seconds


class Asking:
    """``step`` it often; answers go to the judge. ``find_url``: "" while it is not
    known where the server listens."""

    def __init__(
        self,
        judge: Judge,
        find_url: Callable[[], str],
        key: str | None,
        clock: Callable[[], float],
    ) -> None:
        self._judge = judge
        self._find_url = find_url
        self._key = key
        self._clock = clock
        self._probe: Probe | None = None
        self._due = Due()

    def step(self) -> None:
        settings = self._judge.settings
        if self._probe is None:
            if settings.has_log and not settings.request:
                return
            url = self._find_url()
            if not url:
                return
            self._probe = Probe(url, self._key, self._clock)
        for answer in self._probe.answers():
            self._judge.feed_answer(answer)
        if self._judge.is_up:
            if settings.request:
                self._request(self._probe)
        elif not settings.has_log and self._due("health", HEALTH):
            # with a log nobody is asked before it says READY
            self._probe.ask("/health", settings.deadline + 5)

    def _request(self, probe: Probe) -> None:
        judge, deadline = self._judge, self._judge.settings.deadline
        if probe.is_asking("/generate"):
            # it takes long: is anybody there?
            if self._due("others", HEALTH):
                probe.ask(CHEAP[0], SOON)
                probe.ask("/health", deadline + 5)
            return
        answers = judge.answers
        calm = answers.confirmed and not answers.unreachable
        if self._due("again", AGAIN if calm else HEALTH):
            judge.request_sent()
            probe.ask("/generate", deadline)
            self._due.put_off("others", min(HEALTH, deadline / 2))
