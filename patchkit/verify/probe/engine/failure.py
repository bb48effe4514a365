"""Why an engine ended: what a rank wrote into the log before it did. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: SGLang logs this in front of a rank's traceback.
_SAYS = "hit an exception"
_FRAME = re.compile(r'\s*File "([^"]+)", line \d+')
_ERROR = re.compile(r"[\w.]+(Error|Exception|Interrupt|Warning|\w+)(: .*)?\Z")
_SHOWN = 30


class EngineFailed(Exception):
    """``raised_in``: files of the rank's traceback, innermost first."""

    def __init__(self, error: str, trace: Sequence[str], raised_in: Sequence[str]):
        super().__init__(error)
        self.trace = list(trace)
        self.raised_in = list(raised_in)


def read_failure(ended: str, log: str) -> EngineFailed:
    """``ended``: how this process learned of it. Several ranks may have written; the
    first that did is the cause, more likely than not."""
    lines = log.splitlines()
    starts = [n for n, line in enumerate(lines) if _SAYS in line]
    if not starts:
        return EngineFailed(ended, lines[-_SHOWN:], [])
    trace: list[str] = []
    for line in lines[starts[0] + 1 :]:
        trace.append(line)
        if trace[1:] and _is_end(line):
            break
    frames = [found.group(1) for line in trace if (found := _FRAME.match(line))]
    return EngineFailed(trace[-1].strip()[:300], trace[-_SHOWN:], frames[::-1])


def _is_end(line: str) -> bool:
    """Whether it is a traceback's last line, which is not indented."""
    return bool(line) and not line[0].isspace() and bool(_ERROR.match(line))
