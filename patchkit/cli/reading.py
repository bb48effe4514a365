"""logs."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchkit.cli.options import JSON
from patchkit.cli.terminal import print_json, say, slow, style_for
from patchkit.errors import UsageError

if TYPE_CHECKING:
    from patchkit.logs.files import File, Found
    from patchkit.logs.reading import Reading, Report

NO = 1


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--draft",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The draft's folder: are the captured layers those of its config.json?",
)
@click.option(
    "--release",
    metavar="VERSION",
    help="The SGLang that served: with --draft, which rule for layer ids it has.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, min_open=True),
    metavar="REL",
    help="Norms that differ by less are the same; default 0.001, with --compare 0.01.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also draw norms and rows/s into FILE.html or FILE.png.",
)
@click.option(
    "--follow", is_flag=True, help="Go on as the logs grow; Ctrl-C ends with a summary."
)
@click.option(
    "--compare",
    is_flag=True,
    help="Of two runs, join by step and layer: where do they part first?",
)
@JSON
def logs(
    paths: Sequence[str],
    draft: Path | None,
    release: str | None,
    tolerance: float | None,
    plot: Path | None,
    follow: bool,
    compare: bool,
    as_json: bool,
) -> int:
    """What the taps saw: a table, and findings in words.

    PATH is a server's log (.gz too), the folder that EAGLE3_DEBUG_DIR named, or - for
    stdin. Exit 0: no error was found; 1: there is one, with --compare a difference;
    3: a path can't be read.
    """
    _check(paths, draft, release, plot, follow, compare)
    if tolerance is not None and not math.isfinite(tolerance):
        raise UsageError(f"--tolerance {tolerance} is no bound", hint="give 0.01")
    if compare:
        return _compare(paths[0], paths[1], tolerance, as_json)
    from patchkit.logs.draft import read_draft
    from patchkit.logs.files import File, find
    from patchkit.logs.reading import TOLERANCE, Options, Reading
    from patchkit.logs.text import report_json, report_text

    if plot is not None:
        from patchkit.logs.plot import check_plot

        check_plot(plot)
    found = find(paths)
    config = read_draft(draft, release) if draft else None
    reading = Reading(Options(tolerance or TOLERANCE, config, plot is not None))
    files = [File(one, follow=follow) for one in found.files]
    if follow:
        _follow(reading, files, found, as_json)
    else:
        _read(reading, files)
    report = _finish(reading, files)
    if as_json:
        print_json(report_json(report))
    else:
        print(report_text(report, style_for(sys.stdout)))
    if plot is not None and report.plotted is not None:
        from patchkit.logs.plot import draw

        draw(report.plotted, plot)
        say(f"drew {plot}")
    return NO if report.failed else 0


def _check(
    paths: Sequence[str],
    draft: Path | None,
    release: str | None,
    plot: Path | None,
    follow: bool,
    compare: bool,
) -> None:
    if compare and len(paths) != 2:
        raise UsageError(
            f"--compare takes two runs, not {len(paths)}",
            hint="patchkit logs --compare A B",
        )
    if compare and (draft or plot or follow):
        raise UsageError(
            "--compare goes with neither --draft, --plot nor --follow",
            hint="run patchkit logs on each of the two for these",
        )
    if release and not draft:
        raise UsageError(
            "--release says which rule for layer ids holds, and is for --draft",
            hint="give --draft DIR too, or leave --release out",
        )
    if len(set(paths)) != len(paths):
        raise UsageError("a path is there twice", hint="name each once")


def _read(reading: Reading, files: list[File]) -> None:
    from patchkit.logs.files import read_all

    with slow("reading"):
        for batch in read_all(files):
            _not_both(files)
            reading.see(batch)


def _not_both(files: Sequence[File]) -> None:
    kinds = {one.json_lines for one in files} - {None}
    if len(kinds) > 1:
        raise UsageError(
            "a log and JSON lines of the same run say everything twice",
            hint="give the log or the folder; to compare two runs: --compare A B",
        )


def _follow(reading: Reading, files: list[File], found: Found, as_json: bool) -> None:
    from patchkit.logs.files import follow

    show = _Shown(reading, as_json)
    say("following; Ctrl-C ends with a summary")
    try:
        for batch in follow(files, found.folders, show):
            _not_both(files)
            reading.see(batch)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    for one in files:
        reading.see(one.close())


class _Shown:
    """Shows each finding once, when it is new."""

    def __init__(self, reading: Reading, as_json: bool) -> None:
        self._reading = reading
        self._as_json = as_json
        self._count = 0

    def __call__(self) -> None:
        from patchkit.logs.text import finding_text

        found = list(self._reading.findings.found.values())
        new, self._count = found[self._count :], len(found)
        if new and not self._as_json:
            style = style_for(sys.stdout)
            for one in new:
                print("\n".join(finding_text(one, style, style.width or 80)))
            sys.stdout.flush()


def _finish(reading: Reading, files: Sequence[File]) -> Report:
    return reading.finish(
        {one.name: one.counts for one in files},
        [one.head for one in files if one.json_lines is False],
        [f"{one.name}: {one.cut}" for one in files if one.cut],
    )


def _compare(one: str, other: str, tolerance: float | None, as_json: bool) -> int:
    from patchkit.logs.compare import TOLERANCE, compare
    from patchkit.logs.parting import comparison_json, comparison_text

    with slow("comparing"):
        found = compare(one, other, tolerance or TOLERANCE)
    if as_json:
        print_json(comparison_json(found))
    else:
        print(comparison_text(found, style_for(sys.stdout)))
    return NO if found.parted else 0
