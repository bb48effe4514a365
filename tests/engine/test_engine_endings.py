"""However an engine's run ends, no process and no port is left of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import enginekit as kit
import pytest

from patchkit.verify.interpreter import has_torch

pytestmark = [
    pytest.mark.probe,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="reads /proc"),
    pytest.mark.skipif(not has_torch(kit.PYTHON), reason="needs the verify extra"),
]


@pytest.fixture
def start() -> Iterator[Callable[[int], kit.Run]]:
    """Starts so many engines, one after another."""
    runs = []

    def make(engines: int) -> kit.Run:
        runs.append(kit.Run("0.5.9", engines))
        return runs[-1]

    yield make
    for one in runs:
        one.end()


def test_any_part_of_it_is_killed(start: Callable[[int], kit.Run]) -> None:
    """The scheduler, then the worker of another engine, then, of a third, the command
    that wanted it all."""
    run = start(3)
    run.look(1)
    run.kill(run.steps[0])
    said = run.result()
    assert said["status"] == "failed" and "ended by SIGKILL" in said["error"], said
    assert run.gone(run.parent, run.zygote)
    run.look(2)
    run.kill(run.worker)
    said = run.result()
    assert said == {"status": "died", "error": "killed by SIGKILL"}
    assert run.gone(run.parent, run.zygote)
    run.look(3)
    run.kill(run.parent)
    assert run.gone()


@pytest.mark.engines
def test_the_zygote_is_killed(start: Callable[[int], kit.Run]) -> None:
    run = start(1)
    run.look(1)
    run.kill(run.zygote)
    assert run.result()["error"] == "the probe itself ended before this job did"
    assert run.gone()
