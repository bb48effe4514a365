"""apply, reapply, revert."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchkit.cli.options import CHECK, COMMIT, DRY, complete_recipe, on_target
from patchkit.cli.terminal import print_json, slow, style_for, write_diff
from patchkit.errors import UsageError

if TYPE_CHECKING:
    from patchkit.model import RecipeInfo
    from patchkit.registry import Registry
    from patchkit.workspace.planning import Plan
    from patchkit.workspace.tree import Workspace

NO = 1


def _options(values: Sequence[str]) -> dict[str, dict[str, str]]:
    """``-O key=value`` or ``-O recipe:key=value``; the key "" is every recipe."""
    chosen: dict[str, dict[str, str]] = {}
    for one in values:
        name, equals, value = one.partition("=")
        recipe, _colon, key = name.rpartition(":")
        if not equals or not key:
            raise UsageError(
                f"-O {one}: an option is given as key=value",
                hint="for example -O layers=all, or -O debug-logging:layers=all",
            )
        chosen.setdefault(recipe, {})[key] = value
    return chosen


def requested(
    registry: Registry,
    names: Sequence[str],
    project: Path | None,
    values: Sequence[str],
) -> list[tuple[RecipeInfo, Mapping[str, str]]]:
    """The recipes and options that ``apply`` was asked for."""
    from patchkit.project import read_project
    from patchkit.registry import check_options, did_you_mean

    wanted: dict[str, dict[str, str]] = {}
    if project is not None:
        read = read_project(project)
        for folder in read.folders:
            registry.add_folder(folder)
        for name in read.recipes:
            wanted[registry.get(name).name] = dict(read.options.get(name, {}))
    for name in names:
        wanted.setdefault(registry.get(name).name, {})
    if not wanted:
        raise UsageError(
            "no recipe was named", hint="patchkit list shows them; or give --from FILE"
        )
    chosen = _options(values)
    for recipe, options in chosen.items():
        for name in [recipe] if recipe else _takers(registry, wanted, options):
            if name not in wanted:
                raise UsageError(
                    f"-O {recipe}:...: {recipe} is not among the recipes to apply",
                    hint=did_you_mean(recipe, wanted) or f"name it: apply {recipe}",
                )
            wanted[name].update(options)
    return [
        (registry.get(name), check_options(registry.get(name), options))
        for name, options in wanted.items()
    ]


def _takers(
    registry: Registry, wanted: Mapping[str, Any], options: Mapping[str, str]
) -> list[str]:
    """Which recipes take these unqualified options: one, or the one that knows them."""
    if len(wanted) == 1:
        return list(wanted)
    takers = [
        name
        for name in wanted
        if set(options) <= {one.name for one in registry.get(name).options}
    ]
    if len(takers) != 1:
        raise UsageError(
            f"-O {' '.join(options)}: {len(takers) or 'none'} of these recipes"
            f" take{'' if takers else 's'} that",
            hint="say which one, as in -O recipe:key=value; patchkit show RECIPE lists"
            " its options",
        )
    return takers


@click.command()
@click.argument("recipes", nargs=-1, shell_complete=complete_recipe)
@click.option(
    "--from",
    "project",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Apply the recipe set of a patchkit.toml.",
)
@click.option("-O", "values", multiple=True, metavar="KEY=VALUE", help="An option.")
@DRY
@CHECK
@COMMIT
@on_target
def apply(
    workspace: Workspace,
    recipes: Sequence[str],
    project: Path | None,
    values: Sequence[str],
    **flags: Any,
) -> int:
    """Apply recipes; several are one transaction."""
    from patchkit.workspace.planner import plan_apply

    requests = requested(workspace.registry, recipes, project, values)
    return _change(workspace, lambda: plan_apply(workspace, requests), **flags)


@click.command()
@DRY
@CHECK
@COMMIT
@on_target
def reapply(workspace: Workspace, **flags: Any) -> int:
    """Recompute what is applied: after git pull, an upgrade of SGLang or patchkit."""
    from patchkit.workspace.planner import plan_reapply

    return _change(workspace, lambda: plan_reapply(workspace), **flags)


@click.command()
@click.argument("recipes", nargs=-1, shell_complete=complete_recipe)
@DRY
@CHECK
@COMMIT
@on_target
def revert(workspace: Workspace, recipes: Sequence[str], **flags: Any) -> int:
    """Take recipes out again; without a name, everything."""
    from patchkit.workspace.planner import plan_revert

    names = [name.replace("_", "-") for name in recipes]
    return _change(workspace, lambda: plan_revert(workspace, names), **flags)


def _change(
    workspace: Workspace,
    plan: Callable[[], Plan],
    *,
    dry_run: bool,
    check: bool,
    commit: bool,
    python: str | None,
    as_json: bool,
) -> int:
    from patchkit.outcome import describe, plan_diff
    from patchkit.report.change import change_text
    from patchkit.target import imported_package
    from patchkit.workspace.writer import execute

    dry = dry_run or check
    imported = imported_package(python)
    notes: list[str] = []
    made = None
    opened = workspace.reading(dry=True) if dry else workspace.writing()
    # stdout is the answer, whatever a recipe prints
    with opened, slow("working on the target"), redirect_stdout(sys.stderr):
        planned = plan()
        if not dry:
            notes, made = execute(workspace, planned, commit=commit)
    value = describe(workspace, planned, imported, dry, notes, made)
    diff = plan_diff(workspace.target, planned) if dry else b""
    if as_json:
        print_json(value | ({"diff": diff.decode("utf-8", "replace")} if dry else {}))
    else:
        if dry_run:
            write_diff(diff)
        text = change_text(value, style_for(sys.stderr if dry else sys.stdout))
        print(text, file=sys.stderr if dry else sys.stdout)
    return NO if check and planned.changes else 0
