"""watch."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchkit.cli.options import JSON
from patchkit.cli.terminal import say, style_for
from patchkit.errors import CannotRun, UsageError

if TYPE_CHECKING:
    from patchkit.watch.events import Event
    from patchkit.watch.run import Options, Status, View
    from patchkit.watch.verdict import Verdict

#: Seconds between two plain lines while nothing else is to be said.
EVERY = 10.0


class _Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from patchkit.watch.text import durations_of

        if isinstance(value, float):
            return value
        try:
            return durations_of(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time; give 90s, 30m or 1h30m", param, ctx)


@click.command()
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", metavar="URL", default="", help="Where the server answers.")
@click.option("--log", metavar="FILE", default="", help="Its log; - is stdin.")
@click.option("--pid", type=click.IntRange(min=1), help="Its first process.")
@click.option(
    "--until",
    type=click.Choice(["ready", "weights", "graphs", "end"]),
    help="When it is done; end goes on after ready. Default: ready, or with a"
    " command end.",
)
@click.option(
    "--timeout",
    type=_Duration(),
    default=1800.0,
    metavar="TIME",
    help="Until ready; default 30m.",
)
@click.option(
    "--stall",
    type=_Duration(),
    default=60.0,
    metavar="TIME",
    help="No movement for so long is a hang; default 60s.",
)
@click.option(
    "--deadline",
    type=_Duration(),
    default=20.0,
    metavar="TIME",
    help="For the request that proves that it is ready; default 20s.",
)
@click.option("--no-request", is_flag=True, help="Believe the log; send no request.")
@click.option(
    "--api-key", envvar="PATCHKIT_API_KEY", metavar="KEY", help="The server's API key."
)
@click.option("--keep", is_flag=True, help="Never end a server that was started here.")
@click.option("--replay", metavar="FILE", help="Explain a finished log instead.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the phases of all ranks as a picture (HTML).",
)
@JSON
def watch(
    command: Sequence[str],
    url: str,
    log: str,
    pid: int | None,
    until: str | None,
    timeout: float,
    stall: float,
    deadline: float,
    no_request: bool,
    api_key: str | None,
    keep: bool,
    replay: str | None,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Is the server loading, capturing, ready, dead or hung?

    \b
    patchkit watch --url http://127.0.0.1:8000 --log server.log
    patchkit watch -- python -m sglang.launch_server ...

    The second form starts the server, passes its log on and watches it. Exit 0: READY
    (or what --until asks for); 1: CRASHED, HUNG, UNHEALTHY, or it was stopped before it
    was ready; 5: the timeout came while it was still loading.
    """
    from patchkit.watch.judge import Settings, Until

    _check_picture(picture)
    chosen = Until(until or ("end" if command else "ready"))
    settings = Settings(
        chosen, stall, timeout, deadline, request=not no_request, url_given=bool(url)
    )
    if replay is not None:
        return _replay(replay, settings, picture, as_json)
    from patchkit.watch.run import Options, watch

    options = Options(settings, url, log, pid or 0, api_key, tuple(command), keep)
    with _view(options, as_json) as view:
        verdict, watched = watch(options, view)
    child: dict[str, Any] = {}
    if watched.child is not None:
        child["child_pid"] = watched.child.pid
        child["child_exit_code"] = watched.child.exit_code
    child["log"] = str(watched.log_path) if watched.log_path else None
    _answer(verdict, as_json, child, to_stderr=bool(command) and not as_json)
    if picture is not None:
        _draw(picture, watched.judge, verdict)
    return verdict.exit_code


def _replay(name: str, settings: Any, picture: Path | None, as_json: bool) -> int:
    from patchkit.watch.replay import replay

    judge, verdict = replay(name, settings)
    _answer(verdict, as_json, {"log": name}, to_stderr=False)
    if picture is not None:
        _draw(picture, judge, verdict)
    return verdict.exit_code


def _answer(
    verdict: Verdict, as_json: bool, more: dict[str, Any], *, to_stderr: bool
) -> None:
    from patchkit.watch.text import verdict_text

    if as_json:
        _print_event("verdict", verdict.to_json() | more)
        return
    stream = sys.stderr if to_stderr else sys.stdout
    print(verdict_text(verdict, style_for(stream)), file=stream, flush=True)


def _check_picture(picture: Path | None) -> None:
    if picture is not None and not picture.absolute().parent.is_dir():
        raise UsageError(
            f"--picture {picture}: there is no folder {picture.parent}",
            hint="make it first",
        )


def _draw(file: Path, judge: Any, verdict: Verdict) -> None:
    from patchkit.watch.timeline import timeline_html

    try:
        file.write_text(timeline_html(judge.phases, verdict), encoding="utf-8")
    except OSError as problem:
        raise UsageError(
            f"{file} can't be written: {problem.strerror}", hint="give another FILE"
        ) from None
    say(f"the phases of all ranks are drawn in {file}")


# -- while it goes on -----------------------------------------------------------------


@contextlib.contextmanager
def _view(options: Options, as_json: bool) -> Iterator[View]:
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

    def log(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._teed.flush()
            self._teed.buffer.write(data)
            self._teed.buffer.flush()


class _Live(_Plain):
    """One line that is drawn anew."""

    def __init__(self, teed: Any, live: Any) -> None:
        super().__init__(teed)
        self._live = live

    def say(self, text: str) -> None:
        self._live.console.print(f"patchkit: {text}", markup=False, highlight=False)

    def status(self, status: Status) -> None:
        self._live.update(_line(status))

    def log(self, data: bytes) -> None:
        if self._teed.isatty():
            # above the line, which stays at the bottom
            text = data.decode("utf-8", "replace").replace("\r", "\n")
            for one in text.splitlines():
                if one.strip():
                    self._live.console.out(one, highlight=False)
        else:
            super().log(data)


def _live() -> Any:
    from patchkit.watch.extras import need

    need("rich", "draw its line on a terminal")
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, soft_wrap=False)
    return Live(console=console, refresh_per_second=4, transient=True)


def _line(status: Status) -> Any:
    """A bar where there is a percentage, then the words; cut to the terminal."""
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    from patchkit.watch.text import status_line, usage

    grid = Table.grid(padding=(0, 1), expand=False)
    seen = status.progress.fraction
    if seen is not None:
        mark: Any = ProgressBar(total=1.0, completed=seen, width=16)
    else:
        mark = Spinner("dots")
    words = status_line(status).split(" | ")
    used = usage(status)
    first = " | ".join(words[: len(words) - len(used)])
    grid.add_row(mark, Text(first, no_wrap=True, overflow="ellipsis"))
    if used:
        second = " | ".join(used)
        grid.add_row("", Text(second, style="dim", no_wrap=True, overflow="ellipsis"))
    return grid


class _Events:
    """One JSON object a line."""

    def __init__(self, teed: Any) -> None:
        self._plain = _Plain(teed)
        self._phase = ""
        self._at = 0.0
        self.log = self._plain.log

    def say(self, text: str) -> None:
        _print_event("note", {"says": text})

    def event(self, event: Event) -> None:
        from patchkit.watch.events import Kind

        shown = (Kind.BEGIN, Kind.END, Kind.HTTP_UP, Kind.READY, Kind.FAILURE)
        if event.kind in shown:
            _print_event(
                event.kind.value.replace(" ", "-"),
                {
                    "rank": event.line.rank,
                    "stage": event.stage.value,
                    "name": event.name,
                    "text": event.line.text[:500],
                },
            )

    def status(self, status: Status) -> None:
        from patchkit.watch.text import status_json

        now = time.monotonic()
        if status.phase == self._phase and now - self._at < EVERY:
            return
        self._phase, self._at = status.phase, now
        _print_event("status", status_json(status))


def _print_event(name: str, value: dict[str, Any]) -> None:
    print(json.dumps({"event": name, "time": time.time()} | value), flush=True)


__all__ = ["CannotRun", "watch"]
