"""What a watch is told, and what it tells while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from patchkit.errors import UsageError
from patchkit.watch.address import check_url
from patchkit.watch.events import Event
from patchkit.watch.settings import Settings
from patchkit.watch.status import Status
from patchkit.watch.verdict import Verdict


@dataclass(frozen=True)
class Options:
    """``log``: a path, or "-" for stdin. ``command``: the server to start."""

    settings: Settings = field(default_factory=Settings)
    url: str = ""
    log: str = ""
    pid: int = 0
    key: str | None = None
    command: tuple[str, ...] = ()
    keep: bool = False


class View(Protocol):
    """What the command line shows. Called from one thread."""

    def say(self, text: str) -> None: ...
    def event(self, event: Event) -> None: ...
    def status(self, status: Status) -> None: ...
    def log(self, data: bytes) -> None: ...
    def ready(self, says: str) -> None:
        """It got ready, and the watch goes on."""

    def decided(self, verdict: Verdict) -> None:
        """At once; a server that we started may take its time to end then."""


def needs(options: Options) -> None:
    """Raise UsageError for options that can't work together."""
    if not (options.url or options.log or options.pid or options.command):
        raise UsageError(
            "what should be watched?",
            hint="give --log server.log, --pid PID or --url http://host:port, or a"
            " command: patchkit watch -- python -m sglang.launch_server ...",
        )
    if options.command and (options.pid or options.log == "-"):
        raise UsageError(
            "a command is started by patchkit, so --pid and --log - make no sense",
            hint="leave them out; --log FILE says where its log goes",
        )
    if options.url:
        check_url(options.url)
    if options.key is not None and not (
        options.key.isascii() and options.key.isprintable()
    ):
        # not to be shown: it is a secret
        raise UsageError(
            "the key has characters that no HTTP header may hold",
            hint="look at --api-key and PATCHKIT_API_KEY",
        )


def needs_of_replay(name: str, options: Options) -> None:
    """Raise UsageError for what makes no sense with a finished log."""
    given = {
        "--log": options.log,
        "--url": options.url,
        "--pid": options.pid,
        "--keep": options.keep,
        "a command": options.command,
    }
    some = " and ".join(what for what, value in given.items() if value)
    if some:
        raise UsageError(
            f"--replay explains a log that is finished, so {some} makes no sense",
            hint=f"patchkit watch --replay {name}; or leave --replay out",
        )
