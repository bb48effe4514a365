"""Trees of SGLang 0.5.9, stock and patched, and the command in this process."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clikit import Answer
from support import make_checkout, stock

from patchkit import cli as command_line
from patchkit.cli import terminal


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name in ("SGLANG_DIR", "NO_COLOR") or name.startswith("GIT_"):
            monkeypatch.delenv(name)


@pytest.fixture
def cli(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    """``cli("status", "--target", folder)`` -> Answer."""

    # how fast this machine is must not show
    monkeypatch.setattr(terminal, "SLOW", 3600)

    def run(*arguments: str | Path) -> Answer:
        capsysbinary.readouterr()
        code = command_line.run([str(one) for one in arguments])
        out, err = capsysbinary.readouterr()
        return Answer(code, out, err.decode())

    return run


@pytest.fixture(scope="session")
def _patched_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patched") / "site-packages"
    shutil.copytree(stock("0.5.9"), folder)
    assert command_line.run(["apply", "debug-logging", "--target", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def _checkouts_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    made = tmp_path_factory.mktemp("checkouts")
    clean = make_checkout(stock("0.5.9"), made / "clean")
    patched = Path(shutil.copytree(clean, made / "patched"))
    assert command_line.run(["apply", "debug-logging", "--target", str(patched)]) == 0
    return clean, patched


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A private site-packages with stock 0.5.9."""
    return Path(shutil.copytree(stock("0.5.9"), tmp_path / "site-packages"))


@pytest.fixture
def patched(tmp_path: Path, _patched_once: Path) -> Path:
    """A private site-packages with debug-logging applied."""
    return Path(shutil.copytree(_patched_once, tmp_path / "patched"))


@pytest.fixture
def checkout(tmp_path: Path, _checkouts_once: tuple[Path, Path]) -> Path:
    """A private git checkout of stock 0.5.9."""
    return Path(shutil.copytree(_checkouts_once[0], tmp_path / "checkout"))


@pytest.fixture
def patched_checkout(tmp_path: Path, _checkouts_once: tuple[Path, Path]) -> Path:
    """A private git checkout with debug-logging applied, not committed."""
    return Path(shutil.copytree(_checkouts_once[1], tmp_path / "patched_checkout"))


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """An empty folder for a user's recipes."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    return folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may read and enter (pytest's own are private)."""
    folder = Path(tempfile.mkdtemp(prefix="patchkit-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def stock_wheel(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A release in the cache, as a wheel of the real one's patched files only."""
    version, base = "0.5.9", stock("0.5.9")
    cache = tmp_path_factory.mktemp("cache")
    (cache / "wheels").mkdir()
    wheel = cache / "wheels" / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted(base.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(base))
    monkeypatch.setenv("PATCHKIT_CACHE", str(cache))
    return version
