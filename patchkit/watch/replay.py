"""Explains a log after the fact. Only reads."""

from __future__ import annotations

import time
from dataclasses import replace

from patchkit.errors import UsageError
from patchkit.watch.judge import Judge
from patchkit.watch.lines import Splitter
from patchkit.watch.settings import Settings
from patchkit.watch.verdict import Verdict


def replay(name: str, settings: Settings) -> tuple[Judge, Verdict]:
    """What became of the server that wrote this log ("-": stdin). Raises UsageError."""
    now = time.time()
    # nobody can be asked any more
    judge = Judge(replace(settings, has_log=True, request=False), 0.0)
    splitter = Splitter()
    try:
        with open(0 if name == "-" else name, "rb") as file:
            while data := file.read(1 << 20):
                for raw in splitter.feed(data):
                    judge.feed(raw, now, fresh=False)
    except OSError as problem:
        raise UsageError(
            f"--replay {name} can't be read: {problem.strerror}",
            hint="give the log of a server",
        ) from None
    for raw in splitter.end():
        judge.feed(raw, now, fresh=False)
    judge.end_of_log()
    verdict = judge.decide(now)
    assert verdict is not None, "an ended log always has a verdict"
    return judge, verdict
