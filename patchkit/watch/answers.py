"""What the server said by HTTP, and what that makes of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Questions in a row that come to nothing before that counts.
TRIES = 3


@dataclass(frozen=True)
class Answer:
    """What an HTTP request came to. ``status`` 0: no answer; ``refused``: nobody
    listens; ``late``: not within the deadline; ``error``: what went wrong, in a line;
    ``foreign``: why what answers is no SGLang."""

    path: str
    at: float
    seconds: float
    status: int = 0
    refused: bool = False
    late: bool = False
    error: str = ""
    foreign: str = ""

    @property
    def denied(self) -> bool:
        """Whether it asks for a key."""
        return self.status in (401, 403)


class Answers:
    """Feed it every answer. ``sure``: where the server is asked is the user's word."""

    def __init__(self, *, sure: bool) -> None:
        self._sure = sure
        self.latest: dict[str, Answer] = {}
        self.notes: list[str] = []
        #: whether a request was answered, or none can be tried
        self.confirmed = False
        #: whether one was answered
        self.answered = False
        #: requests that the engine failed; and those in a row that reached nobody
        self.failed = 0
        self.unreachable = 0
        self._foreign = 0

    def feed(self, answer: Answer, working: bool) -> None:
        """``working``: whether the engine was at work since the request was sent."""
        self.latest[answer.path] = answer
        self._foreign = self._foreign + 1 if answer.foreign else 0
        if answer.path == "/generate":
            self._feed_request(answer, working)

    @property
    def healthy(self) -> bool:
        health = self.latest.get("/health")
        return health is not None and health.status == 200 and not health.foreign

    @property
    def troubled(self) -> bool:
        """Whether requests come to nothing."""
        lost = self.unreachable >= TRIES and (self._sure or self.answered)
        return bool(self.failed) or lost

    @property
    def denied(self) -> Answer | None:
        """That health can't be asked for without a key, or with this one."""
        health = self.latest.get("/health")
        return health if health is not None and health.denied else None

    @property
    def foreign(self) -> Answer | None:
        """That what answers there is no SGLang; a page in place of ``/model_info`` is
        proof, while in front of a server that starts a proxy may say what it likes."""
        if not self._sure:
            return None
        told = [one for one in self.latest.values() if one.foreign]
        asked = any(one.path == "/generate" for one in told)
        return told[-1] if asked or self._foreign >= TRIES else None

    def _feed_request(self, answer: Answer, working: bool) -> None:
        reached = bool(answer.status) or answer.late
        self.unreachable = 0 if reached else self.unreachable + 1
        if answer.foreign:
            if not self._sure:
                self.untried(f"what answers there is no SGLang: {answer.foreign}")
        elif not reached:
            if self.unreachable >= TRIES and not self._sure and not self.answered:
                self.untried(answer.error)
        elif working and (answer.late or answer.status == 503):
            self._note("requests take long, but the engine is at work")
        elif answer.late or answer.status >= 500:
            self.failed += 1
        else:
            self.confirmed = self.answered = True
            self.failed = 0
        if answer.denied:
            self._note(
                f"the test request was refused ({answer.status}), so the engine was not"
                " asked: --api-key KEY, or PATCHKIT_API_KEY, lets it in"
            )
        elif 400 <= answer.status < 500 and not answer.foreign:
            self._note(
                f"the test request was refused ({answer.status}): {answer.error}"
            )

    def untried(self, why: str) -> None:
        """Nobody can be asked: the log is believed."""
        self._note(f"no request was tried: {why}")
        self.confirmed = True

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
