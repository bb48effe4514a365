"""watch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchkit.cli.options import JSON
from patchkit.cli.terminal import style_for
from patchkit.cli.watchview import print_event, print_line, say, view_of, write
from patchkit.errors import UsageError

if TYPE_CHECKING:
    from patchkit.watch.verdict import Verdict


class _Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from patchkit.watch.text import durations_of

        if isinstance(value, float):
            return value
        try:
            seconds = durations_of(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time; give 90s, 30m or 1h30m", param, ctx)
        if not seconds:
            self.fail(f"{value!r} is no time to wait; give 1s or more", param, ctx)
        return seconds


@click.command()
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", metavar="URL", default="", help="Where the server answers.")
@click.option(
    "--log",
    metavar="FILE",
    default="",
    help="Its log; - is stdin. With a command: where that goes.",
)
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
@click.option(
    "--replay", metavar="FILE", help="Explain a finished log, gzipped or not, instead."
)
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

    The second form starts the server, passes its log on and watches it.

    Exit codes: 0 READY (or what --until asks for), or it was stopped once it was ready;
    1 CRASHED, HUNG, UNHEALTHY, or it was stopped before; 2 usage; 4 can't run here;
    5 the timeout came while it was still loading; 130 a third ^C or SIGTERM, which
    waits for nothing; 70 a bug of ours.
    """
    from patchkit.watch.settings import Settings, Until

    _check_picture(picture)
    # a file that it comes from ends with a line end
    key = (api_key or "").strip() or None
    chosen = Until(until or ("end" if command else "ready"))
    settings = Settings(
        chosen,
        stall,
        timeout,
        deadline,
        request=not no_request,
        url=url,
        key=bool(key),
    )
    from patchkit.watch.options import Options, needs_of_replay

    options = Options(settings, url, log, pid or 0, key, tuple(command), keep)
    if replay is not None:
        needs_of_replay(replay, options)
        return _replay(replay, settings, picture, as_json)
    from patchkit.watch.run import watch

    with view_of(options, as_json) as view:
        verdict, watched = watch(options, view)
    child: dict[str, Any] = {}
    if watched.child is not None:
        child["child_pid"] = watched.child.pid
        child["child_exit_code"] = watched.child.exit_code
        child["child_was_ended"] = watched.was_ended
    child["log"] = str(watched.log_path) if watched.log_path else None
    _answer(verdict, as_json, child, to_stderr=bool(command))
    if picture is not None:
        _draw(picture, watched.judge, verdict)
    return verdict.exit_code


def _replay(name: str, settings: Any, picture: Path | None, as_json: bool) -> int:
    from patchkit.watch.replay import replay

    judge, verdict = replay(name, settings, print_line if as_json else None)
    _answer(verdict, as_json, {"log": name}, to_stderr=False)
    if picture is not None:
        _draw(picture, judge, verdict)
    return verdict.exit_code


def _answer(
    verdict: Verdict, as_json: bool, more: dict[str, Any], *, to_stderr: bool
) -> None:
    from patchkit.watch.text import about_server, verdict_text

    if as_json:
        print_event("verdict", verdict.to_json() | more)
        return
    stream = sys.stderr if to_stderr else sys.stdout
    server = []
    if "child_pid" in more:
        runs, ended = more["child_exit_code"] is None, more["child_was_ended"]
        server = about_server(more["child_pid"], runs, ended, more["log"])
    write(stream, verdict_text(verdict, style_for(stream), server) + "\n")


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
