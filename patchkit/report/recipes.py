"""list and show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from patchkit.model import RecipeInfo
from patchkit.report.style import Style, wrap

Json = dict[str, Any]

_OTHERS = (
    ("Makes right, of the checks of patchkit verify", "fixes"),
    ("Can't stand together with", "excludes"),
    ("Applied after, whatever the order given", "after"),
)


def recipe_json(info: RecipeInfo, tap_environment: Sequence[tuple[str, str]]) -> Json:
    environment = [*info.environment, *(tap_environment if info.uses_tap else ())]
    return {
        "name": info.name,
        "version": info.version,
        "summary": info.summary,
        "doc": info.doc,
        "files": list(info.files),
        "options": [
            {"name": one.name, "default": one.default, "help": one.help}
            for one in info.options
        ],
        "environment": [{"name": k, "help": v} for k, v in environment],
        "sites": [{"name": k, "says": v} for k, v in info.sites],
        "releases": info.releases,
        "after": list(info.after),
        "excludes": list(info.excludes),
        "fixes": [one.partition("[")[0] for one in info.fixes],
        "inserts_only": info.inserts_only,
        "origin": info.origin,
        "path": str(info.path),
    }


def list_text(recipes: Iterable[RecipeInfo], style: Style) -> str:
    lines = []
    for info in recipes:
        lines.append(f"{style(info.name, 'bold')}  {info.summary}")
        files = ", ".join(Path(one).name for one in info.files)
        lines.append(style(f"    {files}", "dim"))
    return "\n".join(lines)


def show_text(value: Json, style: Style) -> str:
    lines = [
        f"{style(value['name'], 'bold')} {value['version']}  {value['summary']}",
        "",
        *value["doc"].split("\n"),
        "",
        f"{style('Releases', 'bold')}  {value['releases'] or 'not said'}",
    ]
    rows = [(one, "") for one in value["files"]]
    lines += _section("Files", rows, style)
    lines += _section("Sites", [(s["name"], s["says"]) for s in value["sites"]], style)
    options = [(f"-O {o['name']}={o['default']}", o["help"]) for o in value["options"]]
    lines += _section("Options (with their defaults)", options, style)
    rows = [(one["name"], one["help"]) for one in value["environment"]]
    lines += _section("Environment of the server", rows, style)
    for title, key in _OTHERS:
        lines += _section(title, [(one, "") for one in value[key]], style)
    return "\n".join(lines)


def _section(title: str, rows: Sequence[tuple[str, str]], style: Style) -> list[str]:
    if not rows:
        return []
    lines = ["", style(title, "bold")]
    for name, text in rows:
        lines.append(f"  {name}")
        lines += [f"      {line}" for line in wrap(text, 72)]
    return lines
