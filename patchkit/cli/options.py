"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from patchkit.cli.terminal import say

JSON = click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
RECIPES = click.option(
    "--recipes",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder of your own recipes; may be given again.",
)
TARGET = click.option(
    "--target",
    metavar="DIR",
    help="SGLang checkout, its python/, the package, or site-packages."
    " Default: $SGLANG_DIR, else the sglang that --python imports.",
)
PYTHON = click.option(
    "--python", metavar="PYTHON", help="The interpreter that will run SGLang."
)
DRY = click.option("--dry-run", is_flag=True, help="Show the diff; write nothing.")
CHECK = click.option(
    "--check", is_flag=True, help="Write nothing; exit 1 if something would change."
)
COMMIT = click.option(
    "--commit", is_flag=True, help="Also commit just these files on your branch."
)


def on_target(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command on a target; hands it an open Workspace."""

    @JSON
    @RECIPES
    @PYTHON
    @TARGET
    @wraps(function)
    def command(
        *args: Any,
        target: str | None,
        python: str | None,
        folders: Sequence[Path],
        **rest: Any,
    ) -> Any:
        from patchkit.registry import Registry
        from patchkit.target import find_package
        from patchkit.workspace.tree import Workspace

        workspace = Workspace(find_package(target, python), Registry(folders), say)
        return function(workspace, *args, python=python, **rest)

    return command


def complete_recipe(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    from patchkit.registry import Registry

    return [i.name for i in Registry().all() if i.name.startswith(incomplete)]
