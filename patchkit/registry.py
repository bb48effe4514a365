"""Finds recipes, and reads what there is to know of them without importing them.

A recipe is one file that defines one subclass of ``Recipe``: built in
(``patchkit.recipes``), in a folder given with ``--recipes``, or a module named by an
entry point of group ``patchkit.recipes``. Its metadata are class-level literals, so
``ast`` can read them: importing LibCST costs more than all of ``patchkit status``.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchkit.errors import Refused, UsageError
from patchkit.model import TAP_FOLDER, Applied, Option, RecipeInfo

if TYPE_CHECKING:
    from patchkit.recipe import Recipe

BUILTIN = "builtin"
PLUGIN = "entry point"


class Registry:
    """The recipes known to one command. ``folders`` are the user's own."""

    def __init__(self, folders: Iterable[Path] = ()):
        self._recipes: dict[str, RecipeInfo] = {}
        for path in _package_files("patchkit.recipes"):
            self._add(path, BUILTIN, "patchkit.recipes." + path.stem)
        self._plugins_read = False
        for folder in folders:
            self.add_folder(folder)

    def add_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UsageError(
                f"{folder}: there is no such folder of recipes",
                hint="give the folder that holds your recipe files",
            )
        for path in sorted(folder.glob("[!_]*.py")):
            self._add(path.resolve(), str(folder.resolve()), "")

    def _add(self, path: Path, origin: str, module: str) -> None:
        info = read_recipe(path, origin, module)
        if info is None:
            return
        known = self._recipes.get(info.name)
        if known is not None and known.path != info.path:
            raise UsageError(
                f"two recipes are called {info.name}: {known.path} and {info.path}",
                hint="rename one of the files",
            )
        self._recipes[info.name] = info

    def _read_plugins(self) -> None:
        """Recipes of other distributions; asking for them costs half a `status`."""
        if self._plugins_read:
            return
        self._plugins_read = True
        from importlib.metadata import entry_points

        for entry in entry_points(group="patchkit.recipes"):
            spec = importlib.util.find_spec(entry.module)
            if spec is not None and spec.origin is not None:
                self._add(Path(spec.origin), PLUGIN, entry.module)

    def near(self) -> list[RecipeInfo]:
        """The built-in recipes and those of the folders given, by name."""
        return [self._recipes[name] for name in sorted(self._recipes)]

    def all(self) -> list[RecipeInfo]:
        """``near``, and the recipes of other distributions."""
        self._read_plugins()
        return self.near()

    def find(self, name: str) -> RecipeInfo | None:
        if name not in self._recipes:
            self._read_plugins()
        return self._recipes.get(name)

    def get(self, name: str) -> RecipeInfo:
        """The recipe of that name. Raises UsageError with the nearest names."""
        found = self.find(name) or self.find(name.replace("_", "-"))
        if found is None:
            hint = did_you_mean(name, self._recipes)
            raise UsageError(
                f"no recipe is called {name!r}",
                hint=hint or "patchkit list shows them; --recipes DIR adds your own",
            )
        return found

    def recorded(self, applied: Applied) -> RecipeInfo:
        """The recipe of a journal entry, wherever it came from.

        Raises Refused if it is no longer there: its neighbours can't be recomputed.
        """
        if applied.origin not in (BUILTIN, PLUGIN):
            folder = Path(applied.origin)
            if applied.name not in self._recipes and folder.is_dir():
                self.add_folder(folder)
        info = self.find(applied.name)
        if info is None:
            where = (
                "" if applied.origin == BUILTIN else f" (it was in {applied.origin})"
            )
            raise Refused(
                f"recipe {applied.name} is applied but no longer there{where}, so the"
                " tree can't be recomputed",
                hint="put it back (--recipes DIR), or revert everything:"
                " `patchkit revert` needs no recipe",
            )
        return info


def check_options(info: RecipeInfo, options: Mapping[str, str]) -> dict[str, str]:
    """Only options that differ from their defaults. Raises UsageError."""
    known = {option.name: option.default for option in info.options}
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(
                f"recipe {info.name} has no option {name!r}",
                hint=hint or f"patchkit show {info.name} lists its options",
            )
    return {k: v for k, v in sorted(options.items()) if v != known[k]}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 3, 0.5)
    if close and difflib.SequenceMatcher(None, name, close[0]).ratio() > 0.9:
        close = close[:1]  # a slip of the finger
    return f"did you mean {' or '.join(close)}?" if close else ""


def read_recipe(path: Path, origin: str, module: str = "") -> RecipeInfo | None:
    """A recipe's metadata, from its source; ``None`` if it defines no recipe.

    Raises UsageError if the file can't be parsed, or a literal is not literal.
    """
    try:
        data = path.read_bytes()
        tree = ast.parse(data)
    except (OSError, SyntaxError, ValueError) as problem:
        raise UsageError(
            f"recipe file {path} can't be read: {problem}",
            hint="mend the file, or leave its folder out",
        ) from None
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).split(".")[-1] == "Recipe" for base in node.bases)
    ]
    if not found:
        return None
    if len(found) > 1:
        raise UsageError(
            f"recipe file {path} defines {len(found)} recipes",
            hint="one recipe, one file",
        )
    fields = _literals(found[0], path)
    doc = ast.get_docstring(tree) or ast.get_docstring(found[0]) or ""
    name = path.stem.replace("_", "-")
    return RecipeInfo(
        name=name,
        module=module,
        class_name=found[0].name,
        summary=fields.get("summary") or doc.split("\n")[0],
        doc=doc,
        version=int(fields.get("version", 1)),
        files=tuple(fields.get("files") or fields.get("edits", ())),
        options=tuple(
            Option(key, str(default), text)
            for key, (default, text) in fields.get("options", {}).items()
        ),
        environment=tuple(fields.get("environment", ())),
        sites=tuple(fields.get("sites", {}).items()),
        releases=str(fields.get("releases", "")),
        next_step=str(fields.get("next_step", "")),
        after=tuple(fields.get("after", ())),
        inserts_only=bool(fields.get("inserts_only", True)),
        uses_tap=bool(fields.get("uses_tap", False)),
        promises=tuple(fields.get("promises", {}).items()),
        excludes=tuple(fields.get("excludes", ())),
        absent=tuple(fields.get("absent", {}).items()),
        looks_at=tuple(fields.get("looks_at", ())),
        fixes=tuple(fields.get("fixes", ())),
        changes=tuple(fields.get("changes", ())),
        without_draft=tuple(fields.get("without_draft", ())),
        origin=origin,
        path=path,
        digest=hashlib.sha256(data).hexdigest(),
    )


def _literals(node: ast.ClassDef, path: Path) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        if not isinstance(target, ast.Name):
            continue
        try:
            if target.id == "edits" and isinstance(value, ast.Dict):
                fields["edits"] = [ast.literal_eval(k) for k in value.keys if k]
            else:
                fields[target.id] = ast.literal_eval(value)
        except ValueError:
            fields[target.id] = None
        if not _fits(target.id, fields[target.id]):
            raise UsageError(
                f"{path}:{statement.lineno}: {target.id} must be a literal, of the"
                " kind that class Recipe says",
                hint="patchkit reads it without importing the recipe",
            )
    return fields


def _fits(name: str, value: Any) -> bool:
    if name == "options" and isinstance(value, dict):
        return all(isinstance(one, tuple) and len(one) == 2 for one in value.values())
    return name not in _METADATA or isinstance(value, _METADATA[name])


_METADATA: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("summary", "releases", "next_step"), (str,)),
    **dict.fromkeys(("files", "environment", "after", "edits"), (tuple, list)),
    **dict.fromkeys(
        ("excludes", "looks_at", "fixes", "changes", "without_draft"), (tuple, list)
    ),
    **dict.fromkeys(("options", "sites", "promises", "absent"), (dict,)),
    **dict.fromkeys(("version", "inserts_only", "uses_tap"), (int,)),
}


def load(info: RecipeInfo) -> type[Recipe]:
    """Import a recipe's class. Raises Refused if importing it fails."""
    try:
        if info.module:
            module = importlib.import_module(info.module)
        else:
            # a name of its own, so that it can't hide another module
            name = f"patchkit_user_recipe.{info.path.stem}"
            spec = importlib.util.spec_from_file_location(name, info.path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        found: type[Recipe] = getattr(module, info.class_name)
    except (Exception, SystemExit) as problem:  # a recipe is a user's code
        raise Refused(
            f"recipe {info.name} can't be imported:"
            f" {type(problem).__name__}: {problem}",
            hint=f"mend {info.path}",
        ) from None
    return found


def _package_files(package: str, pattern: str = "[!_]*.py") -> list[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return []
    return sorted(
        path
        for folder in spec.submodule_search_locations
        for path in Path(folder).glob(pattern)
    )


@lru_cache(maxsize=1)
def tap_files() -> Mapping[str, bytes]:
    """The tap package, by path relative to the sglang package."""
    return {f"{TAP_FOLDER}/{p.name}": p.read_bytes() for p in _tap_sources()}


def tap_digest() -> str:
    """What tells one tap from another."""
    total = hashlib.sha256()
    for path, data in sorted(tap_files().items()):
        total.update(path.encode() + b"\0" + data)
    return total.hexdigest()


def _tap_sources() -> list[Path]:
    return _package_files("patchkit.tap", "*.py")


def tap_environment() -> tuple[tuple[str, str], ...]:
    """The tap's environment variables, read from its settings without torch."""
    for path in _tap_sources():
        if path.name == "settings.py":
            for node in ast.parse(path.read_bytes()).body:
                target = (
                    getattr(node, "target", None) or getattr(node, "targets", [None])[0]
                )
                if isinstance(target, ast.Name) and target.id == "ENVIRONMENT":
                    return tuple(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    return ()
