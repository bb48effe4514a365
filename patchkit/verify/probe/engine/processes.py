"""Engine's own processes: forked, since forking takes what is imported along, and ended
with this one, whatever happens to it.

A dying rank tells its parent by SIGQUIT, upon which SGLang kills the whole tree, this
process too. Here that becomes an exception, so that there is something to report.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing import process as spawned
from typing import Any

import torch

from patchkit.verify.probe.ledger import Ledger
from patchkit.verify.probe.orphans import die_with_parent

_REAPED_S = 5.0


class EngineEnded(KeyboardInterrupt):
    """One of Engine's processes has ended. A ``KeyboardInterrupt``: an event loop lets
    no other exception of a signal handler's through."""


class Processes:
    """``kill_process_tree`` is what SGLang is to call in place of its own."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.own = self.forking = os.getpid()
        self.ending = False

    def prepare(self) -> None:
        """Before Engine is made."""
        multiprocessing.set_start_method("fork", force=True)
        self._let_it_be(multiprocessing, "set_start_method")
        os.register_at_fork(before=self._forks, after_in_child=self._in_child)
        signal.signal(signal.SIGCHLD, self._child_ended)
        signal.signal(signal.SIGQUIT, lambda *_: self.kill_process_tree())

    def end(self) -> None:
        """Kill what Engine has started, and wait until it is gone."""
        self.ending = True
        children = list(multiprocessing.active_children())
        for child in children:
            child.kill()
        for child in children:
            child.join(_REAPED_S)

    def kill_process_tree(
        self, pid: int | None = None, include_parent: bool = True, *_: Any, **__: Any
    ) -> None:
        """Of this process: say that it was asked for; of a rank: end it."""
        if os.getpid() != self.own:
            os._exit(1)
        if include_parent and not self.ending:
            raise EngineEnded("a rank said that it failed")
        self.end()

    def _child_ended(self, *_: Any) -> None:
        if self.ending or os.getpid() != self.own:
            return
        # active_children() would forget who is gone
        for child in list(spawned._children):  # type: ignore[attr-defined]
            if child.exitcode is not None:
                code = child.exitcode
                how = f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"
                raise EngineEnded(f"{child.name} ended {how}")

    def _forks(self) -> None:
        self.forking = os.getpid()

    def _in_child(self) -> None:
        die_with_parent(self.forking)
        # After a fork torch makes its pool of threads anew, when it is first asked for:
        # a loader's threads, which ask together, would find none.
        torch.set_num_threads(1)
        for number in (signal.SIGCHLD, signal.SIGQUIT):
            with contextlib.suppress(ValueError):
                signal.signal(number, signal.SIG_DFL)

    def _let_it_be(self, module: Any, name: str) -> None:
        function: Callable[..., Any] = getattr(module, name)

        def nothing(*_: Any, **__: Any) -> None:
            self.ledger.replaced[f"{function.__module__}.{name}"] += 1

        setattr(module, name, nothing)
