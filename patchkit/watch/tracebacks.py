"""Tracebacks in a log, and which of them is the first cause. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from patchkit.watch.lines import Line

HEAD = "Traceback (most recent call last)"
#: Lines that a message of an exception may go on for, and a traceback in all.
_TAIL = 30
_LONGEST = 400

_CHAIN = ("During handling of the above", "The above exception was the direct cause")
_ERROR = re.compile(
    r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Warning|Failure)\b"
)
_NAME = re.compile(r"[A-Za-z_][\w.]*(: |$)")

#: What a process says when another one went away: a rank, or the server that it was
#: started by, or (0.5.11 on) the server of a rank that died before it was up.
_VICTIM = re.compile(
    r"Connection (closed|reset|refused) by peer|Broken pipe|\bEOFError\b"
    r"|Connection (reset|closed)|NCCL communicator was aborted|Socket (closed|Timeout)"
    r"|remote process exited|unhandled system error|ProcessGroup.* aborted"
    r"|connectFullMesh failed|Software caused connection abort"
    r"|Rank \d+ scheduler died"
)


@dataclass
class Traceback:
    """One traceback, with those it is chained to. ``header``: what stood in front of
    it, as in "Scheduler hit an exception:"; ``fatal``: with it a process gave up;
    ``bare``: python printed it, no logger."""

    rank: str
    header: str
    fatal: bool
    bare: bool
    at: float
    lines: list[str] = field(default_factory=list)
    error: str = ""
    closed: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def is_victim(self) -> bool:
        return bool(_VICTIM.search(self.text[-2000:]))


class Collector:
    """Puts tracebacks together, line by line."""

    def __init__(self) -> None:
        self.found: list[Traceback] = []
        self._open: Traceback | None = None
        self._before = ""
        self._tail = 0
        self._gap = False

    def feed(self, line: Line, at: float, fatal: bool) -> None:
        """``fatal``: the line says that its process gives up."""
        text = line.text
        if self._open is not None and line.stamp is not None:
            self.close()
        if HEAD in text:
            self._begin(line, at, fatal)
        elif self._open is not None:
            self._go_on(self._open, text)
        if line.stamp is None and self._open is None:
            self._before = text
        elif line.stamp is not None:
            self._before = ""

    def close(self) -> None:
        """Nothing more of the one at hand will come."""
        if self._open is not None:
            self._open.closed = True
            self._open = None

    def _begin(self, line: Line, at: float, fatal: bool) -> None:
        now = self._open
        chained = now is not None and any(
            one.startswith(_CHAIN) for one in now.lines[-2:]
        )
        if now is not None and chained:
            now.lines.append(line.text)
            now.error = ""
            return
        self.close()
        header = line.text.partition(HEAD)[0].strip()
        bare = line.stamp is None
        if bare and not header and re.match(r"(Process|Exception in) ", self._before):
            header = self._before.strip()
        self._tail = 0
        self._gap = False
        self._open = Traceback(line.rank, header, fatal, bare, at, [HEAD + ":"])
        self.found.append(self._open)

    def _go_on(self, now: Traceback, text: str) -> None:
        chaining = text.startswith(_CHAIN)
        if not text:
            self._gap = bool(now.error)
            return
        if now.error and not chaining:
            self._tail += 1
            # a blank line ends the message, unless what follows chains
            if self._gap or self._tail > _TAIL or re.match(r"Process \S+:$", text):
                self.close()
                return
        self._gap = False
        if len(now.lines) < _LONGEST:
            now.lines.append(text)
        is_error = _ERROR.match(text) or _NAME.match(text)
        if not now.error and is_error and not chaining:
            now.error = text
            self._tail = 0


def first_cause(found: list[Traceback]) -> Traceback | None:
    """The first that made a process give up, and that is not about another's end.

    A logged traceback that no process ended of is none: SGLang logs some and goes on.
    """
    given_up = [one for one in found if one.fatal]
    printed = [one for one in found if one.bare]
    for some in (given_up, printed):
        real = [one for one in some if not one.is_victim]
        if real:
            return real[0]
    both = given_up or printed
    return both[0] if both else None
