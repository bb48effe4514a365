"""Fixtures of all tests. What they share besides is in ``support``."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from support import stock

# No test asserts a time, and machines are slow at times.
settings.register_profile("patchkit", deadline=None)
settings.load_profile("patchkit")

# What nohup, or a shell in the background, starts inherits that these are ignored, and
# so would the commands that tests start.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Makes a private tree of a release: ``tree("0.5.9")`` -> folder of sglang/."""

    def make(version: str = "0.5.9", name: str = "site-packages") -> Path:
        folder = tmp_path / name
        shutil.copytree(stock(version), folder)
        return folder

    return make
