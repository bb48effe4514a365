"""Each test gets its own copy of the tap, under a parent package of its own."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import os
import re
import shutil
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

# Triton's own functions are made for its interpreter, or not, when it is imported;
# torch may be the one that does so.
os.environ["TRITON_INTERPRET"] = "1"
with contextlib.suppress(ImportError):
    importlib.import_module("triton")
del os.environ["TRITON_INTERPRET"]

TAP = Path(__file__).parents[2] / "patchkit" / "tap"
LOGGER = "sglang.srt.patchkit_tap"
LINE = re.compile(r"EAGLE3_DEBUG\[(?P<site>[^\]]+)\] (?P<words>rank=.*)")
_numbers = itertools.count()


class Said:
    """What the tap said, parsed as a reader of the log would."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def texts(self) -> list[str]:
        return [r.getMessage() for r in self._caplog.records if r.name == LOGGER]

    @property
    def lines(self) -> list[dict[str, str]]:
        found = []
        for text in self.texts:
            match = LINE.fullmatch(text)
            if match:
                words = [word.split("=", 1) for word in match["words"].split(" ")]
                assert len({key for key, _ in words}) == len(words), text
                found.append({"site": match["site"], **dict(words)})
        return found

    @property
    def only(self) -> dict[str, str]:
        assert len(self.texts) == 1, self.texts
        return self.lines[0]


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO)
    return Said(caplog)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """load(EVERY="2", ...) -> the package, as it would stand in a target tree."""

    def load(enabled: str | None = "1", **environment: str) -> ModuleType:
        for name in [name for name in os.environ if name.startswith("EAGLE3_DEBUG")]:
            monkeypatch.delenv(name)
        if enabled is not None:
            monkeypatch.setenv("EAGLE3_DEBUG", enabled)
        for name, value in environment.items():
            monkeypatch.setenv(f"EAGLE3_DEBUG_{name}", value)
        parent = f"tree{next(_numbers)}"
        root = tmp_path / "path"
        shutil.copytree(TAP, root / parent / "srt" / "patchkit_tap")
        monkeypatch.syspath_prepend(root)
        return importlib.import_module(f"{parent}.srt.patchkit_tap")

    return load


@pytest.fixture
def batch():
    return SimpleNamespace(can_run_tbo=False)


@pytest.fixture(params=["portable", "triton"])
def through(request, load, monkeypatch):
    """through(**environment) -> devicekit.Through, both ways of making a record."""
    import devicekit

    def make(enabled="1", **environment):
        if request.param == "triton":
            devicekit.need_interpreter(monkeypatch)
        tap = load(enabled, **environment)
        return devicekit.Through(tap, monkeypatch, triton=request.param == "triton")

    make.way = request.param
    return make
