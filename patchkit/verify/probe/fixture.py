"""``patchkit.fixtures``, also where it is not installed.

The probe may run under an interpreter that knows patchkit by ``PYTHONPATH`` alone;
in a checkout the package lies in ``fixtures/`` then, which only an install maps.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

NAME = "patchkit.fixtures"


def load_package() -> Any:
    """The package, imported; ``weights`` in it needs torch."""
    try:
        return importlib.import_module(NAME)
    except ModuleNotFoundError as error:
        if error.name != NAME:
            raise
    folder = Path(__file__).resolve().parents[3] / "fixtures"
    spec = importlib.util.spec_from_file_location(NAME, folder / "__init__.py")
    if spec is None or spec.loader is None or not folder.is_dir():
        raise ModuleNotFoundError(f"{NAME} is neither installed nor in {folder}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module
