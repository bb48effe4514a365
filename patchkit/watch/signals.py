"""The signals that a watch gets while it goes on."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def caught(tell: Callable[[int, int], None]) -> Iterator[None]:
    """``tell`` the signal, and the how many-th it is; from the third on python's own
    answer to ^C. A terminal that is closed (SIGHUP) counts, unless nohup says that it
    is nothing to us."""
    count = 0

    def on_signal(number: int, frame: object) -> None:
        nonlocal count
        count += 1
        if count > 2:
            raise KeyboardInterrupt
        tell(number, count)

    before = {}
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
