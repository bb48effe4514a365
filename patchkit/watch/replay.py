"""Explains a log after the fact. Only reads."""

from __future__ import annotations

import gzip
import io
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from patchkit.errors import UsageError
from patchkit.watch.causes import find_cause
from patchkit.watch.events import Event, Kind
from patchkit.watch.judge import Judge
from patchkit.watch.lines import Splitter
from patchkit.watch.settings import Settings
from patchkit.watch.verdict import Verdict

#: What a file that gzip made begins with, as logrotate leaves them.
_GZIP = b"\x1f\x8b"


def replay(
    name: str, settings: Settings, tell: Callable[[Event, float], None] | None = None
) -> tuple[Judge, Verdict]:
    """What became of the server that wrote this log ("-": stdin; it may be gzipped).
    ``tell`` gets each event, and when it was. Raises UsageError."""
    now = time.time()
    # nobody can be asked any more
    judge = Judge(replace(settings, has_log=True, request=False), 0.0)
    known = False
    for raw in _lines(name):
        for event in judge.feed(raw, now, fresh=False):
            known |= event.kind is not Kind.OTHER or event.line.stamp is not None
            if tell is not None:
                tell(event, judge.clock.at)
    known = known or bool(judge.tracebacks.found)
    if not known and find_cause("\n".join(judge.last_lines)) is None:
        what = (
            "no line of it is of an SGLang server" if judge.last_lines else "is empty"
        )
        raise UsageError(
            f"--replay {name}: {what}",
            hint="give what python -m sglang.launch_server printed",
        )
    judge.end_of_log()
    verdict = judge.decide(now)
    assert verdict is not None, "an ended log always has a verdict"
    return judge, verdict


def _lines(name: str) -> Iterator[str]:
    splitter = Splitter()
    try:
        with open(0 if name == "-" else name, "rb") as file:
            if name != "-" and stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
                raise UsageError(
                    f"--replay {name} is a device", hint="give the log of a server"
                )
            packed = file.peek(2)[:2] == _GZIP
            source: io.BufferedIOBase = gzip.GzipFile(fileobj=file) if packed else file
            while data := source.read(1 << 20):
                yield from splitter.feed(data)
    except (OSError, EOFError, zlib.error) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise UsageError(
            f"--replay {name} can't be read: {why}",
            hint="give the log of a server",
        ) from None
    yield from splitter.end()
