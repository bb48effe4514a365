"""Fixtures of all tests. What they share besides is in ``support``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import stock


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Makes a private tree of a release: ``tree("0.5.9")`` -> folder of sglang/."""

    def make(version: str = "0.5.9", name: str = "site-packages") -> Path:
        folder = tmp_path / name
        shutil.copytree(stock(version), folder)
        return folder

    return make
