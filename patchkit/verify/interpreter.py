"""Which python runs the probe, and the managed environment made for it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from patchkit.errors import CannotRun
from patchkit.fetch import cache_folder

DISTRIBUTION = "sglang-patchkit"
_COMPLETE = "complete"
_CHECK = (
    "import sys, importlib.util as u\n"
    "sys.exit(sys.version_info < (3, 10) or"
    " any(u.find_spec(name) is None for name in ('torch', 'transformers')))"
)


def choose_python(package: Path, named: str | None) -> tuple[str, str]:
    """The interpreter and why it: the one ``named``, the one that owns the target,
    the managed environment, $PATCHKIT_PROBE_PYTHON, or this one; the first that has
    torch and transformers.

    Raises CannotRun if none has.
    """
    if named:
        if not has_torch(named):
            raise CannotRun(
                f"--python {named} can't import torch and transformers (python 3.10 or"
                " newer is needed)",
                hint="patchkit verify --setup makes an environment that can;"
                " then leave --python out",
            )
        return named, "--python"
    candidates = [
        (_owner(package), "the interpreter that owns the target"),
        (managed_python(), "the managed environment"),
        (os.environ.get("PATCHKIT_PROBE_PYTHON"), "$PATCHKIT_PROBE_PYTHON"),
        (sys.executable, "this interpreter"),
    ]
    for python, why in candidates:
        if python and has_torch(python):
            return python, why
    raise CannotRun(
        "no python here can import torch and transformers, which running SGLang takes",
        hint="patchkit verify --setup makes an environment once; or give --python",
    )


def has_torch(python: str) -> bool:
    """Whether that interpreter could run the probe; nothing is imported."""
    try:
        done = subprocess.run(
            [python, "-c", _CHECK], capture_output=True, cwd="/", timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _owner(package: Path) -> str | None:
    """``<prefix>/lib/pythonX.Y/site-packages/sglang`` -> ``<prefix>/bin/python``."""
    if package.parent.name not in ("site-packages", "dist-packages"):
        return None
    for parent in package.parents[2:5]:
        python = parent / "bin" / "python"
        if python.exists():
            return str(python)
    return None


def pins() -> list[str]:
    """The requirements of the ``verify`` extra. Raises CannotRun if not installed."""
    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        declared = []
    found = [
        line.partition(";")[0].strip()
        for line in declared
        if "extra" in line and "verify" in line.partition(";")[2]
    ]
    if not found:
        raise CannotRun(
            f"the metadata of {DISTRIBUTION} are not installed, which say what the"
            " environment needs",
            hint="install patchkit with pip",
        )
    return found


def _managed_folder() -> Path:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    text = "\n".join([version, *sorted(pins())])
    return cache_folder() / f"verify-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def managed_python() -> str | None:
    """The managed environment's interpreter; ``None`` if it was never completed."""
    try:
        folder = _managed_folder()
    except CannotRun:
        return None
    if not (folder / _COMPLETE).exists():
        return None
    return str(folder / "bin" / "python")


def set_up(say: Callable[[str], None]) -> str:
    """Make the managed environment unless it is there; its interpreter.

    A build that was broken off is begun anew. Raises CannotRun with pip's last words.
    """
    made = managed_python()
    if made is not None:
        say("the managed environment is there already")
        return made
    folder, wanted = _managed_folder(), pins()
    shutil.rmtree(folder, ignore_errors=True)
    say(f"making {folder}: {len(wanted)} packages, some 1.3 GB or more; minutes")
    _run([sys.executable, "-m", "venv", str(folder)])
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    torch = [one for one in wanted if one.startswith("torch=")]
    others = [one for one in wanted if one not in torch]
    for one in torch:
        say(f"installing {one}, its CPU build if your package index has it")
        try:
            _run([*pip, "--quiet", f"{one}+cpu"])
        except CannotRun:
            _run([*pip, "--quiet", one])
    say(f"installing {len(others)} more")
    _run([*pip, "--quiet", *others])
    (folder / _COMPLETE).touch()
    say("done")
    return python


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as problem:
        raise CannotRun(f"{command[0]}: {problem}", hint="is it there?") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise CannotRun(
            f"{' '.join(command[1:4])} failed: {said[-1] if said else 'no output'}",
            hint="is the package index reachable from here, and room on the disk?",
            details=tuple(said[-8:-1]),
        )
