"""``patchkit.toml``: the recipe set of a project, for ``apply --from``.

recipes = ["debug-logging"]
recipe-folders = ["our_recipes"]     # relative to this file

[options.debug-logging]
layers = "all"
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KEYS = {"recipes": list, "recipe-folders": list, "options": dict}


@dataclass(frozen=True)
class Project:
    recipes: tuple[str, ...]
    folders: tuple[Path, ...]
    options: Mapping[str, Mapping[str, str]]


def read_project(path: Path) -> Project:
    """Raises UsageError, naming the key, for a file that makes no sense."""
    hint = 'it should read like: recipes = ["debug-logging"]'
    try:
        value: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise UsageError(
            f"{path} can't be read: {problem.strerror}", hint=hint
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path} is not valid TOML: {problem}", hint=hint) from None
    for key, found in value.items():
        if key not in _KEYS:
            raise UsageError(f"{path}: unknown key {key!r}", hint=hint)
        if not isinstance(found, _KEYS[key]):
            raise UsageError(f"{path}: {key} has the wrong type", hint=hint)
    recipes = value.get("recipes", [])
    if not recipes or not all(isinstance(one, str) for one in recipes):
        raise UsageError(f"{path}: recipes must list recipe names", hint=hint)
    folders = value.get("recipe-folders", [])
    if not all(isinstance(one, str) for one in folders):
        raise UsageError(f"{path}: recipe-folders must list folders", hint=hint)
    options = value.get("options", {})
    for name, chosen in options.items():
        if name not in recipes:
            raise UsageError(
                f"{path}: options for {name!r}, which is not in recipes", hint=hint
            )
        if not isinstance(chosen, dict):
            raise UsageError(f"{path}: options.{name} must be a table", hint=hint)
    return Project(
        tuple(recipes),
        tuple(path.parent / one for one in folders),
        {
            name: {key: _text(one) for key, one in chosen.items()}
            for name, chosen in options.items()
        },
    )


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
