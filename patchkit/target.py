"""Finds the SGLang tree and says what it is."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

from patchkit.errors import Refused, UsageError


def find_package(target: str | None, python: str | None) -> Path:
    """The ``sglang`` package folder that ``--target`` means, links resolved.

    ``target`` may be a checkout root, its ``python/``, the package folder or a
    site-packages folder; without it ``$SGLANG_DIR``, then the ``sglang`` that
    ``python`` (default: this interpreter) would import. Raises UsageError/Refused.
    """
    named = target or os.environ.get("SGLANG_DIR")
    if not named:
        found = imported_package(python)
        if found is None:
            raise UsageError(
                f"no target: {python or sys.executable} can't import sglang",
                hint="give --target DIR or set SGLANG_DIR (patchkit fetch 0.5.9 makes"
                " a tree to try things on)",
            )
        return found
    origin = "--target" if target else "SGLANG_DIR"
    # not Path.expanduser, which raises for a user that does not exist
    folder = Path(os.path.expanduser(named))
    if not os.path.exists(folder):
        raise UsageError(
            f"{origin} {named}: there is no such folder, or you may not look into it",
            hint="give an SGLang checkout, or the site-packages folder that holds it",
        )
    if not folder.is_dir():
        raise UsageError(
            f"{origin} {named} is a file", hint="give the folder of an SGLang tree"
        )
    for below in ("", "python/sglang", "sglang"):
        candidate = folder / below
        if os.path.isdir(candidate / "srt") and _is_package(candidate):
            return candidate.resolve()
    raise Refused(
        f"{origin} {named} is not an SGLang tree: no sglang/srt in it, nor in"
        " python/ below it",
        hint="give an SGLang checkout, its python/ folder, the sglang package"
        " folder, or a site-packages folder",
    )


def imported_package(python: str | None) -> Path | None:
    """The folder of the ``sglang`` that an interpreter would import, not importing it.

    ``None`` if it has none. Raises UsageError if the interpreter can't be run.
    """
    if python is None or _same_file(python, sys.executable):
        spec = importlib.util.find_spec("sglang")
        locations = list(spec.submodule_search_locations or ()) if spec else []
        return _package(locations[0]) if locations else None
    # it runs in another folder; a bare name is looked up in $PATH
    program = os.path.abspath(python) if os.sep in python else python
    script = (
        "import importlib.util as u; s = u.find_spec('sglang');"
        "print(list(s.submodule_search_locations or [''])[0] if s else '')"
    )
    try:
        done = subprocess.run(
            [program, "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            cwd="/",
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as problem:
        raise UsageError(
            f"--python {python} can't be run: {_why(problem)}",
            hint="give the interpreter that starts the server",
        ) from None
    found = done.stdout.strip().splitlines()
    return _package(found[-1]) if found and found[-1] else None


def _why(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    if isinstance(problem, subprocess.CalledProcessError):
        said = (problem.stderr or "").strip().splitlines()
        return said[-1] if said else f"it exits with {problem.returncode}"
    return str(problem)


def _package(found: str) -> Path | None:
    """Not a folder that merely is called sglang (a clone, beside which we run)."""
    folder = Path(found).resolve()
    return folder if _is_package(folder) else None


def _is_package(folder: Path) -> bool:
    return os.path.isfile(folder / "__init__.py")


def _same_file(left: str, right: str) -> bool:
    return os.path.abspath(left) == os.path.abspath(right)


def read_version(package: Path) -> str:
    """The tree's version as it says itself, else as the metadata beside it does.

    "unknown" if neither says so (forks and checkouts between releases).
    """
    for name in ("version.py", "_version.py"):
        found = _literal_version(package / name)
        if found:
            return found
    for folder in sorted(package.parent.glob("sglang-*.dist-info")):
        return folder.name[len("sglang-") : -len(".dist-info")]
    return "unknown"


def _literal_version(path: Path) -> str:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        named = any(
            isinstance(one, ast.Name) and one.id in ("__version__", "version")
            for one in node.targets
        )
        if named and isinstance(node.value, ast.Constant):
            value = str(node.value.value)
            if re.match(r"\d", value) and value != "0.0.0.dev0":
                return value
    return ""
