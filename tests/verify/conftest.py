"""The interpreter that can run the probe, and private copies of releases."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import release_tree
from verifykit import PYTHON

from patchkit.verify.interpreter import has_torch


@pytest.fixture(scope="session")
def probe_python() -> str:
    """An interpreter with the verify extra; without one, the test is skipped."""
    if not has_torch(PYTHON):
        pytest.skip(
            f"{PYTHON} has not the verify extra: pip install -e '.[verify]', or set"
            " PATCHKIT_PROBE_PYTHON"
        )
    return PYTHON


@pytest.fixture
def whole_tree(tmp_path: Path) -> Callable[..., Path]:
    """A private copy of a whole release: hard links, so write by replacing only."""

    def make(version: str, name: str = "") -> Path:
        folder = tmp_path / (name or version)
        shutil.copytree(
            release_tree(version),
            folder,
            copy_function=os.link,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        return folder

    return make
