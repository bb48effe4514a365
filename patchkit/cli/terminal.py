"""Printing: answers on stdout, talk on stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from patchkit.errors import PatchkitError

if TYPE_CHECKING:
    from patchkit.report.style import Style


#: Seconds after which a command says what it is doing.
SLOW = 1.0


def print_error(problem: PatchkitError, as_json: bool) -> None:
    from patchkit.report.errors import error_json, error_text

    if as_json:
        print_json(error_json(problem))
    else:
        print(error_text(problem, style_for(sys.stderr)), file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def style_for(stream: Any) -> Style:
    from patchkit.report.style import Style

    wanted = os.environ.get("NO_COLOR", "") == "" and os.environ.get("TERM") != "dumb"
    if not stream.isatty():
        return Style(False)
    return Style(wanted, shutil.get_terminal_size().columns)


def answer(as_json: bool, value: Any, text: Callable[[Any, Style], str]) -> None:
    """The answer, on stdout."""
    if as_json:
        print_json(value)
    else:
        shown = text(value, style_for(sys.stdout))
        if shown:
            print(shown)


def say(text: str) -> None:
    """Talk, on stderr."""
    print(f"patchkit: {text}", file=sys.stderr)


@contextmanager
def slow(what: str) -> Iterator[None]:
    """Say what is being done once it has taken over a second."""
    timer = threading.Timer(SLOW, say, [f"{what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def write_diff(diff: bytes) -> None:
    """Raw bytes to a pipe; to a terminal, which is for reading, in colours and without
    the tap's own files."""
    from patchkit.report.diff import diff_text, fold_tap

    style = style_for(sys.stdout)
    if sys.stdout.isatty():
        shown, folded = fold_tap(diff)
        print(diff_text(shown, style), end="")
        if folded:
            say(f"and {folded} files of the tap's own, shown only in a pipe or a file")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(diff)
        sys.stdout.buffer.flush()


class Progress:
    """Says on a terminal what is being done; elsewhere only what takes long."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.said = 0.0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() or now - self.said > 5:
            self.said = now
            say(f"{now - self.began:5.1f} s  {text}")
