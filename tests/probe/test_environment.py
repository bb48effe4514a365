"""How the probe finds and loads a target's modules, on a target of three lines."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from patchkit.verify.probe import environment

Load = Callable[[Path], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import ``sglang.part`` from a parent folder, as the only sglang there is."""
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path / "cache"))

    def run(parent: Path) -> ModuleType:
        for name in ("sglang", "sglang.part"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
        environment.find_sglang_in(parent)
        importlib.invalidate_caches()
        return importlib.import_module("sglang.part")

    yield run
    for name in ("sglang", "sglang.part"):
        sys.modules.pop(name, None)


def make_target(parent: Path, text: str) -> Path:
    (parent / "sglang").mkdir(parents=True, exist_ok=True)
    (parent / "sglang" / "__init__.py").write_text("")
    part = parent / "sglang" / "part.py"
    part.write_text(text, encoding="utf-8")
    os.utime(part, (1_000_000_000, 1_000_000_000))
    return parent


def test_an_edit_of_the_same_size_and_time_is_seen(tmp_path: Path, load: Load) -> None:
    target = tmp_path / "target"
    assert load(make_target(target, "value = 1\n")).value == 1
    assert load(make_target(target, "value = 2\n")).value == 2


def test_nothing_is_written_beside_the_source(tmp_path: Path, load: Load) -> None:
    target = make_target(tmp_path / "target", "value = 1\n")
    load(target)
    assert list(target.rglob("__pycache__")) == []
    assert list((tmp_path / "cache").rglob("*")) != []


def test_a_copy_shares_bytecode_but_keeps_its_own_name(
    tmp_path: Path, load: Load
) -> None:
    text = "def outer():\n    def inner(): ...\n    return inner\n"
    load(make_target(tmp_path / "one", text))
    count = len(list((tmp_path / "cache").rglob("*")))
    module = load(make_target(tmp_path / "two", text))
    assert len(list((tmp_path / "cache").rglob("*"))) == count
    assert module.outer().__code__.co_filename == module.__file__
    assert Path(module.__file__ or "").is_relative_to(tmp_path / "two")


def test_damaged_bytecode_is_made_again(tmp_path: Path, load: Load) -> None:
    target = make_target(tmp_path / "target", "value = 1\n")
    load(target)
    for file in (tmp_path / "cache").rglob("*"):
        if file.is_file():
            file.write_bytes(b"\x00damaged")
    assert load(target).value == 1


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, load: Load) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert load(make_target(tmp_path / "target", "value = 1\n")).value == 1
