"""What the extra ``watch`` installs, and what to say where it is missing."""

from __future__ import annotations

import importlib
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

from patchkit.errors import CannotRun

EXTRA = "pip install 'sglang-patchkit[watch]'"


def need(module: str, what: str) -> Any:
    """The module. Raises CannotRun, naming the extra, if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise CannotRun(
            f"patchkit watch needs the package {module}, to {what}", hint=EXTRA
        ) from None


def find_pyspy() -> str | None:
    """$PATCHKIT_PYSPY, else the py-spy beside this interpreter, or in $PATH."""
    named = os.environ.get("PATCHKIT_PYSPY")
    if named:
        return named
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy")
