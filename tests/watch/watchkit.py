"""A made-up server for the judge: lines, samples, answers, and its own clock."""

from __future__ import annotations

import time

from patchkit.watch.answers import Answer
from patchkit.watch.judge import Judge
from patchkit.watch.settings import Settings
from patchkit.watch.stall import ProcessSample, Sample

BEGAN = 1_796_000_000.0


def stamp(at: float, rank: str = "") -> str:
    told = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(BEGAN + at))
    return f"[{told}{' ' + rank if rank else ''}] "


class Play:
    """Times are seconds since the start. Two ranks of 10 GB by default."""

    def __init__(self, ranks=("TP0", "TP1"), **settings):
        settings = {"request": False, "stall": 20.0, "timeout": 600.0} | settings
        self.judge = Judge(Settings(**settings), BEGAN)
        self.ranks = ranks
        self.now = 0.0
        self.cpu = 0.0
        self.verdict = None

    def say(self, text, rank="", *, bare=False):
        raw = text if bare else stamp(self.now, rank) + text
        for line in raw.split("\n"):
            self.judge.feed(line, BEGAN + self.now)
        return self

    def arguments(self, **values):
        shown = {"model_path": "/m", "port": 1, "tp_size": len(self.ranks)} | values
        inside = ", ".join(f"{key}={value!r}" for key, value in shown.items())
        return self.say(f"server_args=ServerArgs({inside})")

    def sample(self, *, busy=False, root=True, exit_code=None, gone=(), states=None,
               loaded=(), checkpoint=0):  # fmt: skip
        if busy:
            self.cpu += 0.5
        processes = tuple(
            ProcessSample(
                rank, 100 + index, self.cpu, 10**10, 0, (states or {}).get(rank, "S")
            )
            for index, rank in enumerate(self.ranks)
            if rank not in gone
        )
        self.judge.feed_sample(
            Sample(
                BEGAN + self.now,
                root,
                processes,
                (),
                exit_code,
                loaded=loaded,
                checkpoint=checkpoint,
                checkpoint_name="c",
            )
        )
        return self

    def wait(self, seconds, **sample):
        """Time passes, with a sample each half second; stops at a verdict."""
        end = self.now + seconds
        while self.now < end and self.verdict is None:
            self.now += 0.5
            self.sample(**sample)
            self.verdict = self.judge.decide(BEGAN + self.now)
        return self

    def answer(self, path, **values):
        self.judge.feed_answer(
            Answer(path, BEGAN + self.now, values.pop("seconds", 0.1), **values)
        )
        return self

    def dumps(self, some):
        self.judge.feed_dumps(some, BEGAN + self.now)
        return self

    def load(self, *, draft=False):
        """A whole load, a second a step; as 0.5.9 says it."""
        values = {"speculative_algorithm": "EAGLE3"} if draft else {}
        self.arguments(**values).wait(5, busy=True)
        for _ in range(2 if draft else 1):
            for text in (
                "Init torch distributed begin.",
                "Init torch distributed ends. elapsed=1.0 s",
                "Load weight begin. avail mem=70.0 GB",
                "Load weight end. elapsed=1.0 s, type=X",
                "Memory pool end. avail mem=7.0 GB",
                "Capture cuda graph begin. This can take up to several minutes.",
                "Capture cuda graph end. Time elapsed: 1.0 s.",
            ):
                for rank in self.ranks:
                    self.say(text, rank)
                self.wait(1, busy=True)
        return self

    def serve(self):
        self.say("max_total_num_tokens=4096, chunked", self.ranks[0]).wait(1)
        return self.say("INFO:     Uvicorn running on http://x:1 (Press)").wait(2)

    def ready(self):
        return self.load().serve().say("The server is fired up and ready to roll!")


TRACE = """Traceback (most recent call last):
  File "/opt/sglang/srt/managers/scheduler.py", line 10, in run
    self.step()
  File "/opt/sglang/srt/models/some.py", line 20, in step
    raise it
"""


def traceback(error: str) -> str:
    return TRACE + error
