"""verify."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchkit.cli.options import JSON, PYTHON, RECIPES, TARGET
from patchkit.cli.terminal import Progress, print_json, say, style_for
from patchkit.errors import UsageError

if TYPE_CHECKING:
    from patchkit.verify.run import Report


class _Verify(click.Command):
    """Its help ends with the names of the checks, which take an import."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from patchkit.verify.checks import CHECKS

        with formatter.section("Checks, for --only and --skip"):
            formatter.write_dl([(name, one.proves) for name, one in CHECKS.items()])


@click.command(cls=_Verify)
@click.option(
    "--baseline",
    default="journal",
    metavar="WHAT",
    help="journal (the recorded originals; default), git:REV or pypi:VERSION.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="CHECK",
    help="Run only this check, of those listed below; may be given again.",
)
@click.option(
    "--skip",
    multiple=True,
    metavar="CHECK",
    help="Leave this check out; may be given again.",
)
@click.option(
    "--engine",
    "engine",
    flag_value="only",
    help="Run the engine-… checks instead: SGLang's own engine with the canary pair,"
    " on this CPU; under a minute.",
)
@click.option("--full", "engine", flag_value="too", help="Run them as well.")
@click.option("--strict", is_flag=True, help="Known defects of stock SGLang count.")
@click.option(
    "--timeout",
    default=120.0,
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="For the set-up, and for each run of the models; default 120.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    help="Where the models run; cuda: with SGLang's compiled kernels if they are"
    " installed, else without. Default cpu.",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the report as JUnit XML.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep what each run of the models printed, and what the taps recorded"
    " (patchkit logs reads that), in FOLDER, which must be new or empty.",
)
@click.option(
    "--setup",
    is_flag=True,
    help="Make the managed environment, once: for --device, with --python.",
)
@JSON
@RECIPES
@PYTHON
@TARGET
def verify(
    target: str | None,
    python: str | None,
    folders: Sequence[Path],
    as_json: bool,
    baseline: str,
    only: Sequence[str],
    skip: Sequence[str],
    engine: str | None,
    strict: bool,
    timeout: float,
    device: str,
    junit: Path | None,
    keep: Path | None,
    setup: bool,
) -> int:
    """Run the patched modules on a tiny model: are the outputs and the taps right?

    The real modules of the target run, on a CPU without kernels by default, on a
    synthetic DeepSeek-V3-style target and an EAGLE-3 draft. The target is not
    written to. Exit 0: PASS; 1: FAIL; 4: something could not run; 5: timed out.
    """
    if setup:
        return _set_up(as_json, device, python)
    from patchkit.registry import Registry
    from patchkit.target import find_package
    from patchkit.verify.formats import github_lines, report_json
    from patchkit.verify.run import Options, verify
    from patchkit.verify.text import report_text
    from patchkit.workspace.tree import Workspace

    if junit is not None and not junit.parent.is_dir():
        raise UsageError(
            f"--junit {junit}: there is no folder {junit.parent}", hint="make it first"
        )
    workspace = Workspace(find_package(target, python), Registry(folders), say)
    options = Options(
        *(baseline, only, skip, timeout, python, device, _empty_folder(keep)),
        engine or "no",
    )
    report = verify(workspace, options, Progress())
    if as_json:
        print_json(report_json(report, strict=strict))
    else:
        print(report_text(report, style_for(sys.stdout), strict=strict))
    if junit is not None:
        _write_junit(report, junit, strict)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # stderr works as well as stdout, which may be JSON
        print("\n".join(github_lines(report, strict=strict)), file=sys.stderr)
    return report.exit_code(strict=strict)


def _empty_folder(keep: Path | None) -> Path | None:
    """The absolute path of ``keep``, made if need be. Raises UsageError."""
    if keep is None:
        return None
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise UsageError(
                f"--keep {keep}: the folder is not empty", hint="name another one"
            )
    except OSError as problem:
        raise UsageError(
            f"--keep {keep} can't be made: {problem.strerror}", hint="name another one"
        ) from None
    return keep.resolve()


def _set_up(as_json: bool, device: str, python: str | None) -> int:
    from patchkit.verify.interpreter import set_up

    made = set_up(say, device=device, python=python)
    if as_json:
        print_json({"python": made})
    else:
        print(made)
    return 0


def _write_junit(report: Report, file: Path, strict: bool) -> None:
    from patchkit.verify.formats import report_junit

    try:
        file.write_text(report_junit(report, strict=strict), encoding="utf-8")
    except OSError as problem:
        raise UsageError(
            f"{file} can't be written: {problem.strerror}", hint="give another FILE"
        ) from None
