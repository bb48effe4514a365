"""check-draft."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchkit.cli.changing import requested
from patchkit.cli.options import JSON, PYTHON, RECIPES, TARGET, complete_recipe
from patchkit.cli.terminal import Progress, print_json, say, style_for
from patchkit.errors import Refused, UsageError

if TYPE_CHECKING:
    from patchkit.draft.run import Report

FOLDER = click.Path(path_type=Path)


@click.command("check-draft")
@click.argument("draft_dir", type=FOLDER)
@click.option(
    "--against",
    required=True,
    type=FOLDER,
    metavar="TARGET_DIR_OR_CONFIG",
    help="The target model's folder, or its config.json; no weights of it are read.",
)
@click.option(
    "--algorithm",
    default="EAGLE3",
    type=click.Choice(["EAGLE3", "EAGLE", "NEXTN"]),
    help="What the server is started with; default EAGLE3.",
)
@click.option(
    "--with",
    "recipes",
    multiple=True,
    metavar="RECIPE",
    shell_complete=complete_recipe,
    help="As if this recipe were applied; may be given again. Nothing is written.",
)
@click.option(
    "-O",
    "values",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of a recipe that is given with --with.",
)
@click.option(
    "--fix-names",
    type=FOLDER,
    metavar="OUT_DIR",
    help="Write a copy with tensors called as this release wants them.",
)
@click.option(
    "--timeout",
    default=120.0,
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="For importing SGLang, and for each question to it; default 120.",
)
@click.option(
    "--junit", type=FOLDER, metavar="FILE", help="Also write the report as JUnit XML."
)
@JSON
@RECIPES
@PYTHON
@TARGET
def check_draft(
    target: str | None,
    python: str | None,
    folders: Sequence[Path],
    as_json: bool,
    draft_dir: Path,
    against: Path,
    algorithm: str,
    recipes: Sequence[str],
    values: Sequence[str],
    fix_names: Path | None,
    timeout: float,
    junit: Path | None,
) -> int:
    """Does a draft checkpoint fit this SGLang and this target?

    Reads config.json and the headers of the weights, asks the real draft and target
    classes of the tree, without a GPU and without loading a weight, and says what
    would be dropped, stay random, be skipped, or stop the server.

    Exit 0: it fits; 1: it does not; 3: no checkpoint, or a broken one; 4: SGLang
    can't be asked here.
    """
    from patchkit.draft import run
    from patchkit.draft.output import report_json
    from patchkit.draft.renamed import expect_room
    from patchkit.draft.text import report_text
    from patchkit.registry import Registry
    from patchkit.target import find_package
    from patchkit.workspace.tree import Workspace

    if junit is not None and not junit.parent.is_dir():
        raise UsageError(
            f"--junit {junit}: there is no folder {junit.parent}", hint="make it first"
        )
    if fix_names is not None:
        expect_room(fix_names, draft_dir)
    registry = Registry(folders)
    requests = requested(registry, recipes, None, values) if recipes else []
    workspace = Workspace(find_package(target, python), registry, say)
    options = run.Options(against, algorithm, requests, python, timeout)
    report = run.check_draft(workspace, draft_dir, options, Progress())
    written = _fix_names(report, fix_names) if fix_names is not None else []
    if as_json:
        value = report_json(report)
        if fix_names is not None:
            value["fixed"] = {"folder": str(fix_names), "files": written}
        print_json(value)
    else:
        print(report_text(report, style_for(sys.stdout)))
        if fix_names is not None:
            print("\n".join(["", f"{fix_names}:", *("  " + one for one in written)]))
            print(f"next: patchkit check-draft {fix_names} --against {against}")
    if junit is not None:
        _write_junit(report, junit)
    return report.exit_code


def _fix_names(report: Report, out: Path) -> list[str]:
    from patchkit.draft.renamed import write_renamed

    if not report.renaming and report.config is None:
        raise Refused(
            "--fix-names: no tensor has another name that this release would know;"
            " nothing was written",
            hint="without --fix-names the report says what is wrong",
        )
    return write_renamed(report.checkpoint, report.renaming, report.config, out)


def _write_junit(report: Report, file: Path) -> None:
    from patchkit.draft.output import report_junit

    try:
        file.write_text(report_junit(report), encoding="utf-8")
    except OSError as problem:
        raise UsageError(
            f"{file} can't be written: {problem.strerror}", hint="give another FILE"
        ) from None
