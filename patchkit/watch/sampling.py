"""Looks at the server's processes, the weights they have, and the GPUs."""

from __future__ import annotations

import time
from collections.abc import Mapping

from patchkit.watch.asking import Due
from patchkit.watch.child import Child
from patchkit.watch.gpu import Gpus
from patchkit.watch.loading import Loading
from patchkit.watch.processes import Tree
from patchkit.watch.stall import Sample
from patchkit.watch.usage import CpuUse

#: Seconds between two looks.
SAMPLE = 0.5


class Sampler:
    """``often``: seconds between looks at the weights, at most."""

    def __init__(self, often: float) -> None:
        self.cpu = CpuUse()
        self._often = often
        self._loading = Loading()
        self._gpus = Gpus()
        self._due = Due()
        self._loaded: dict[int, int] = {}

    def look(
        self, tree: Tree, child: Child | None, now: float, *, weights: bool
    ) -> Sample:
        """What there is ``now``; ``child`` if the server was started by us;
        ``weights``: whether those are looked at, too."""
        ranks, others = tree.sample()
        gpu = self._gpus.read()
        pids = {one.pid: one.rank for one in ranks if one.state != "Z"}
        if weights and self._due("weights", SAMPLE):
            self._look_at_weights(pids)
        loaded = {pid: have for pid, have in self._loaded.items() if pid in pids}
        checkpoint = self._loading.checkpoint
        sample = Sample(
            now,
            child.exit_code is None if child else tree.alive,
            ranks,
            others,
            child.exit_code if child else tree.exit_code(),
            gpu[0] if gpu else None,
            gpu[1] if gpu else 0,
            tuple((pids[pid], done) for pid, done in loaded.items()),
            checkpoint.size if checkpoint else 0,
            checkpoint.folder if checkpoint else "",
        )
        self.cpu.feed(sample)
        return sample

    def _look_at_weights(self, pids: Mapping[int, str]) -> None:
        """The kernel goes through a rank's pages for this: not too often."""
        began = time.monotonic()
        self._loaded = self._loading.look(pids)
        took = time.monotonic() - began
        self._due.put_off("weights", max(SAMPLE, min(20 * took, self._often)))
