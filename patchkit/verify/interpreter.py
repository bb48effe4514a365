"""Which python runs the probe, and the managed environment made for it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from patchkit.errors import CannotRun
from patchkit.fetch import cache_folder

DISTRIBUTION = "sglang-patchkit"
_COMPLETE = "complete"
#: What the pins of the ``verify`` extra need.
OLDEST = (3, 11)
_CHECK = """
import sys, importlib.util as u, runpy
if sys.version_info < (3, 10) or u.find_spec('transformers') is None:
    sys.exit(1)
torch = u.find_spec('torch')
if torch is None:
    sys.exit(1)
if sys.argv[1:] == ['cuda']:
    file = torch.submodule_search_locations[0] + '/version.py'
    sys.exit(runpy.run_path(file)['cuda'] is None)
"""


def choose_python(
    package: Path, named: str | None, device: str = "cpu"
) -> tuple[str, str]:
    """The interpreter and why it: the one ``named``, the one that owns the target,
    the managed environment, $PATCHKIT_PROBE_PYTHON, or this one; the first that has
    torch, for ``device``, and transformers.

    Raises CannotRun if none has.
    """
    setup = f"patchkit verify --setup{'' if device == 'cpu' else ' --device cuda'}"
    torch = "torch" if device == "cpu" else "a CUDA build of torch"
    if named:
        if not has_torch(named, device):
            raise CannotRun(
                f"--python {named} can't import {torch} and transformers (python 3.10"
                " or newer is needed)",
                hint=f"{setup} makes an environment that can; then leave --python out",
            )
        return named, "--python"
    candidates = [
        (_owner(package), "the interpreter that owns the target"),
        (managed_python(device), "the managed environment"),
        (os.environ.get("PATCHKIT_PROBE_PYTHON"), "$PATCHKIT_PROBE_PYTHON"),
        (sys.executable, "this interpreter"),
    ]
    for python, why in candidates:
        if python and has_torch(python, device):
            return python, why
    raise CannotRun(
        f"no python here can import {torch} and transformers, which running SGLang"
        " takes",
        hint=f"{setup} makes an environment once; or give --python",
    )


def has_torch(python: str, device: str = "cpu") -> bool:
    """Whether that interpreter could run the probe; nothing is imported."""
    try:
        done = subprocess.run(
            [python, "-c", _CHECK, device], capture_output=True, cwd="/", timeout=60
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


def _managed_folder(version: str, device: str) -> Path:
    """``version`` is like 3.12; pins and device are in the name, too."""
    text = "\n".join([version, *sorted(pins())])
    if device != "cpu":
        text += f"\n{device}"
    return cache_folder() / f"verify-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def managed_python(device: str = "cpu") -> str | None:
    """The managed environment's interpreter, of this python's version before others;
    ``None`` if none was completed. A CUDA build serves the CPU, too."""
    newest_first = [f"3.{minor}" for minor in (13, 12, 11)]
    try:
        for kind in dict.fromkeys([device, "cuda"]):
            for version in dict.fromkeys([_version(sys.version_info), *newest_first]):
                folder = _managed_folder(version, kind)
                if (folder / _COMPLETE).exists():
                    return str(folder / "bin" / "python")
    except CannotRun:  # the pins are not known
        pass
    return None


def _version(of: Sequence[Any]) -> str:
    return f"{of[0]}.{of[1]}"


def set_up(
    say: Callable[[str], None], *, device: str = "cpu", python: str | None = None
) -> str:
    """Make the managed environment for ``device`` unless it is there, with ``python``
    or this interpreter; the environment's own.

    A build that was broken off is begun anew. Raises CannotRun with pip's last words.
    """
    base = python or sys.executable
    found = _version_of(base) if python else tuple(sys.version_info[:2])
    if found < OLDEST:
        raise CannotRun(
            f"{base} is python {_version(found)}, for which what verify installs is"
            f" not made: that needs {_version(OLDEST)} or newer",
            hint="patchkit verify --setup --python python3.12 makes it with another;"
            " patchkit itself may stay where it is",
        )
    folder, wanted = _managed_folder(_version(found), device), pins()
    made = folder / "bin" / "python"
    if (folder / _COMPLETE).exists():
        say("the managed environment is there already")
        return str(made)
    shutil.rmtree(folder, ignore_errors=True)
    size = "1.3 GB, or 5 GB with CUDA" if device == "cpu" else "5 GB"
    say(f"making {folder}: {len(wanted)} packages, some {size}; minutes")
    _run([base, "-m", "venv", str(folder)])
    pip = [str(made), "-m", "pip", "install", "--disable-pip-version-check"]
    pip += ["--no-input", "--quiet"]
    torch = [one for one in wanted if one.startswith("torch=")]
    others = [one for one in wanted if one not in torch]
    for one in torch:
        if device != "cpu":
            say(f"installing {one}")
            _run([*pip, one])
            continue
        say(f"installing {one}, its CPU build if your package index has it")
        try:
            _run([*pip, f"{one}+cpu"])
        except CannotRun:
            _run([*pip, one])
    say(f"installing {len(others)} more")
    _run([*pip, *others])
    if device != "cpu" and not has_torch(str(made), device):
        raise CannotRun(
            f"{folder}: the torch that your package index has is built without CUDA",
            hint="install a CUDA build yourself, and give its interpreter as --python",
        )
    (folder / _COMPLETE).touch()
    say("done")
    return str(made)


def _version_of(python: str) -> tuple[int, ...]:
    told = _run([python, "-c", "import sys; print(*sys.version_info[:2])"])
    return tuple(int(one) for one in told.split())


def _run(command: list[str]) -> str:
    """What it prints. Raises CannotRun with its last words."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as problem:
        raise CannotRun(f"{command[0]}: {problem}", hint="is it there?") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise CannotRun(
            f"{' '.join(command[1:4])} failed: {said[-1][:300] if said else '?'}",
            hint="is the package index reachable from here, and room on the disk?",
            details=tuple(line[:300] for line in said[-8:-1]),
        )
    return done.stdout
