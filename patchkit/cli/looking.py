"""Commands that change nothing in a target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchkit.cli.options import JSON, RECIPES, complete_recipe, on_target
from patchkit.cli.terminal import answer, print_json, say, slow, write_diff
from patchkit.errors import PatchkitError, UsageError

if TYPE_CHECKING:
    from patchkit.workspace.tree import Workspace

NO = 1


@click.command("list")
@JSON
@RECIPES
def list_recipes(as_json: bool, folders: Sequence[Path]) -> None:
    """The recipes: name, one line, the files they touch."""
    from patchkit.registry import Registry
    from patchkit.report.recipes import list_text, recipe_json

    found = Registry(folders).all()
    if as_json:
        print_json([recipe_json(info, ()) for info in found])
    else:
        answer(False, found, list_text)


@click.command()
@click.argument("recipe", shell_complete=complete_recipe)
@JSON
@RECIPES
def show(recipe: str, as_json: bool, folders: Sequence[Path]) -> None:
    """A recipe's docs, options, environment variables, releases and files."""
    from patchkit.registry import Registry, tap_environment
    from patchkit.report.recipes import recipe_json, show_text

    info = Registry(folders).get(recipe)
    answer(as_json, recipe_json(info, tap_environment()), show_text)


@click.command()
@click.option("--check", is_flag=True, help="Exit 1 unless what is applied is APPLIED.")
@click.option(
    "--pid",
    type=click.IntRange(min=1),
    metavar="PID",
    help="Also: does that running server use the patched files? With --check, exit 1"
    " if not.",
)
@on_target
def status(
    workspace: Workspace,
    check: bool,
    pid: int | None,
    python: str | None,
    as_json: bool,
) -> int:
    """What is applied, how the files stand, and which copy python imports."""
    from patchkit.report.change import target_json
    from patchkit.report.status import status_text
    from patchkit.target import imported_package
    from patchkit.workspace.status import needs_attention, read_status

    with workspace.reading(dry=check), slow("reading the target"):
        recipes = read_status(workspace)
    imported = imported_package(python)
    value = {
        "target": target_json(workspace.target),
        "imported": str(imported) if imported else None,
        "is_imported": imported == workspace.target.package,
        "recipes": [
            {
                "name": one.name,
                "version": one.version,
                "options": one.options,
                "state": one.state.value,
                "detail": one.detail,
                "files": [{"path": f.path, "state": f.state.value} for f in one.files],
            }
            for one in recipes
        ],
    }
    unused = False
    if pid is not None:
        from patchkit.watch.running import compare, last_written, look, uses_all

        package = workspace.target.package
        written = last_written(package, workspace.recorded.files)
        process = compare(look(pid), package, written)
        unused = not uses_all(process)
        value["process"] = process
    answer(as_json, value, status_text)
    if pid is not None and not as_json:
        from patchkit.watch.running import running_text

        answer(False, process, running_text)
    return NO if check and (needs_attention(recipes) or unused) else 0


@click.command()
@click.argument("recipe", required=False, shell_complete=complete_recipe)
@click.option("--drift", is_flag=True, help="Your edits on top, instead.")
@on_target
def diff(
    workspace: Workspace,
    recipe: str | None,
    drift: bool,
    python: str | None,
    as_json: bool,
) -> None:
    """What is applied, as a unified diff; or your edits."""
    from patchkit.outcome import applied_diff, drift_diff

    with workspace.reading(), slow("reading the journal"):
        found = drift_diff(workspace) if drift else applied_diff(workspace, recipe)
    if as_json:
        print_json({"diff": found.decode("utf-8", "replace")})
    else:
        write_diff(found)


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it; default: stdout.",
)
@on_target
def export(
    workspace: Workspace, output: Path | None, python: str | None, as_json: bool
) -> None:
    """A patch for hosts without patchkit.

    `git apply` and `patch -p1` take it.
    """
    from patchkit.outcome import applied_diff

    with workspace.reading(), slow("reading the journal"):
        found = applied_diff(workspace, None)
    if not found:
        raise PatchkitError(
            "nothing is applied, so there is nothing to export",
            hint="patchkit apply debug-logging first",
        )
    where = "the checkout's top" if workspace.checkout else "the folder of sglang/"
    if output is not None:
        try:
            output.write_bytes(found)
        except OSError as problem:
            raise UsageError(
                f"{output} can't be written: {problem.strerror}",
                hint="give another -o FILE",
            ) from None
    if as_json:
        value = {"output": str(output) if output else None, "run_in": where}
        print_json(value | {"diff": found.decode("utf-8", "replace")})
    elif output is None:
        write_diff(found)
    else:
        print(
            f"wrote {output}; in {where}: git apply {output}, or patch -p1 < {output}"
        )


@click.command("log")
@on_target
def show_log(workspace: Workspace, python: str | None, as_json: bool) -> None:
    """The journal: every apply and revert of this target, newest first."""
    from patchkit.report.history import log_text, when

    with workspace.reading(), slow("reading the journal"):
        entries = workspace.store.entries()
    value = [
        {
            "commit": one.commit,
            "time": one.time,
            "when": when(one.time),
            "what": one.subject,
            "trailers": [list(pair) for pair in one.trailers],
        }
        for one in entries
    ]
    answer(as_json, value, log_text)
    if not as_json:
        store = workspace.store.path
        say(f"git -C {store} log -p" if entries else "nothing was ever applied here")


@click.command()
@click.argument("version")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to unpack it; default: ./sglang-VERSION.",
)
@click.option("--force", is_flag=True, help="Replace DIR if it is there.")
@JSON
def fetch(version: str, into: Path | None, force: bool, as_json: bool) -> None:
    """A stock SGLang tree from PyPI, without its dependencies, to try things on."""
    from patchkit.fetch import fetch_tree

    folder = into or Path(f"sglang-{version}")
    with slow(f"fetching sglang {version}"):
        wheel = fetch_tree(version, folder, force=force)
    if as_json:
        print_json({"folder": str(folder), "wheel": str(wheel), "version": version})
    else:
        print(f"SGLang {version} is in {folder}")
        print(f"next: patchkit apply debug-logging --target {folder}")
