"""What ``watch`` shows while it goes on: a live line, plain lines, or JSON events."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patchkit.watch.events import Event
    from patchkit.watch.options import Options, View
    from patchkit.watch.status import Status
    from patchkit.watch.verdict import Verdict

#: Seconds between two plain lines while nothing else is to be said.
EVERY = 10.0


def say(text: str) -> None:
    """Talk, on stderr."""
    write(sys.stderr, f"patchkit: {text}\n")


def write(stream: Any, what: str | bytes) -> None:
    """At once. Who reads it may have gone (head, a log shipper, a closed terminal):
    that ends no watch, and no server; nothing is written there any more then."""
    with _unless_gone(stream):
        if isinstance(what, bytes):
            stream.flush()
            stream.buffer.write(what)
            stream.buffer.flush()
        else:
            stream.write(what)
            stream.flush()


@contextlib.contextmanager
def _unless_gone(stream: Any) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        # what its buffer holds goes there, too, when the interpreter ends
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        if stream is sys.stdout:
            say(f"stdout can't be written ({problem.strerror}); watching goes on")


@contextlib.contextmanager
def view_of(options: Options, as_json: bool) -> Iterator[View]:
    """JSON events; a live line on a terminal; plain lines elsewhere."""
    teed = sys.stderr if as_json else sys.stdout
    if as_json:
        yield _Events(teed)
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _live() as live:
            yield _Live(teed, live)
    else:
        yield _Plain(teed)


class _Plain:
    """A line for each phase, and one now and then."""

    def __init__(self, teed: Any) -> None:
        self._teed = teed
        self._phase = ""
        self._at = 0.0
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        say(f"{time.monotonic() - self._began:7.1f} s  {text}")

    def event(self, event: Event) -> None:
        pass

    def status(self, status: Status) -> None:
        from patchkit.watch.text import status_line

        now = time.monotonic()
        if status.phase == self._phase and now - self._at < EVERY:
            return
        self._phase, self._at = status.phase, now
        self.say(status_line(status))

    def ready(self, says: str) -> None:
        self.say(f"READY: {says}; watching goes on")

    def decided(self, verdict: Verdict) -> None:
        if verdict.exit_code:
            self.say(f"{verdict.outcome.value}: {verdict.says}")

    def log(self, data: bytes) -> None:
        if self._teed.isatty():
            from patchkit.watch.lines import printable

            data = printable(data.decode("utf-8", "replace")).encode()
        write(self._teed, data)


class _Live(_Plain):
    """One line that is drawn anew."""

    def __init__(self, teed: Any, live: Any) -> None:
        super().__init__(teed)
        self._live = live

    def say(self, text: str) -> None:
        with _unless_gone(sys.stderr):
            self._live.console.print(f"patchkit: {text}", markup=False, highlight=False)

    def status(self, status: Status) -> None:
        with _unless_gone(sys.stderr):
            self._live.update(_lines(status))

    def log(self, data: bytes) -> None:
        if self._teed.isatty():
            # above the line, which stays at the bottom
            from patchkit.watch.lines import printable

            text = data.decode("utf-8", "replace").replace("\r", "\n")
            with _unless_gone(sys.stderr):
                for one in map(printable, text.splitlines()):
                    if one.strip():
                        self._live.console.out(one, highlight=False)
        else:
            super().log(data)


@contextlib.contextmanager
def _live() -> Iterator[Any]:
    from patchkit.watch.extras import need

    need("rich", "draw its line on a terminal")
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, soft_wrap=False)
    live = Live(console=console, refresh_per_second=4, transient=True)
    with _unless_gone(sys.stderr):
        live.start()
    try:
        yield live
    finally:
        with _unless_gone(sys.stderr):
            live.stop()


def _lines(status: Status) -> Any:
    """Always two, so that nothing jumps, cut to the terminal: a bar where there is a
    percentage, and the phase; then the time in all, the ranks, and what they use."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    from patchkit.watch.text import headline, underline

    grid = Table.grid(padding=(0, 1), expand=False)
    seen = status.progress.fraction
    if seen is not None:
        mark: Any = ProgressBar(total=1.0, completed=seen, width=16)
    else:
        mark = Spinner("dots")
    first, second = " | ".join(headline(status)), " | ".join(underline(status))
    grid.add_row(mark, Text(first, no_wrap=True, overflow="ellipsis"))
    return Group(grid, Text(second, style="dim", no_wrap=True, overflow="ellipsis"))


class _Events:
    """One JSON object a line."""

    def __init__(self, teed: Any) -> None:
        self._plain = _Plain(teed)
        self._phase = ""
        self._at = 0.0
        self.log = self._plain.log

    def say(self, text: str) -> None:
        print_event("note", {"says": text})

    def ready(self, says: str) -> None:
        print_event("confirmed", {"says": says})

    def decided(self, verdict: Verdict) -> None:
        value = {"verdict": verdict.outcome.value, "says": verdict.says}
        print_event("decided", value)

    def event(self, event: Event) -> None:
        print_line(event)

    def status(self, status: Status) -> None:
        from patchkit.watch.text import status_json

        now = time.monotonic()
        if status.phase == self._phase and now - self._at < EVERY:
            return
        self._phase, self._at = status.phase, now
        print_event("status", status_json(status))


def print_line(event: Event, at: float | None = None) -> None:
    """What a line of the log says, if programs care; ``at``: when, if not now."""
    from patchkit.watch.events import Kind
    from patchkit.watch.text import event_json

    if event.kind in (Kind.BEGIN, Kind.END, Kind.HTTP_UP, Kind.READY, Kind.FAILURE):
        when = {} if at is None else {"time": at or None}
        name = event.kind.value.replace(" ", "-")
        print_event(name, event_json(event) | when)


def print_event(name: str, value: dict[str, Any]) -> None:
    event = {"event": name, "time": time.time()} | value
    write(sys.stdout, json.dumps(event) + "\n")
