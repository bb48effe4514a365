"""A stock SGLang tree from PyPI: the wheel, unpacked, without dependencies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

from patchkit.errors import CannotRun, Refused, UsageError

#: From 0.5.11 on, wheels are tagged for Linux although the sglang/ tree inside is
#: plain Python: asked for explicitly, they come on any machine.
_PLATFORM = (
    "--platform=manylinux_2_34_x86_64",
    "--platform=manylinux_2_28_x86_64",
    "--platform=any",
    "--implementation=cp",
    "--python-version=3.12",
)

#: What an unpacked wheel, and patchkit's work on it, put at its top.
_UNPACKED = r"(sglang|tools|sglang-.*\.(dist-info|data)|\.patchkit)\Z"


def cache_folder() -> Path:
    """``$PATCHKIT_CACHE``, else the user's cache folder."""
    named = os.environ.get("PATCHKIT_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "patchkit"


def fetch_wheel(version: str) -> Path:
    """The wheel of that release, from the cache or from PyPI by pip.

    Raises UsageError for no such release, CannotRun if pip can't get it.
    """
    if not re.fullmatch(r"\d+(\.\d+)+((\.?post|rc|a|b)\d+)?", version):
        raise UsageError(
            f"{version!r} is not a release number",
            hint="for example: patchkit fetch 0.5.9",
        )
    wheels = cache_folder() / "wheels"
    found = sorted(wheels.glob(f"sglang-{version}-*.whl"))
    if found:
        return found[0]
    try:
        wheels.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise CannotRun(
            f"{wheels} can't be made: {problem.strerror}", hint="set PATCHKIT_CACHE"
        ) from None
    with tempfile.TemporaryDirectory(dir=wheels) as folder:
        _download(version, Path(folder))
        (wheel,) = Path(folder).glob("sglang-*.whl")
        return Path(shutil.move(wheel, wheels / wheel.name))


def _download(version: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--no-input", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, *_PLATFORM, "--dest", str(folder), f"sglang=={version}"],
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return
    said = done.stderr.strip()
    if "No module named pip" in said:
        raise CannotRun(
            f"{sys.executable} has no pip", hint="python -m ensurepip, then try again"
        )
    if "No matching distribution" in said or "from versions: none" in said:
        listed = re.search(r"from versions: ([^)]*)\)", said)
        known = listed.group(1) if listed else ""
        if known and known != "none":
            raise UsageError(
                f"sglang {version} is not on the package index",
                hint=f"the newest there: {', '.join(known.split(', ')[-5:])}",
            )
    last = [line for line in said.splitlines() if line.startswith("ERROR")] or [said]
    raise CannotRun(
        f"pip could not fetch sglang {version}: {last[-1][:300]}",
        hint="is the package index reachable from here?",
    )


def fetch_tree(version: str, folder: Path, *, force: bool = False) -> Path:
    """Unpack the release into ``folder`` (all or nothing); returns the wheel.

    Raises UsageError if ``folder`` is there already and not ``force``, Refused if it
    holds more than an unpacked wheel.
    """
    if os.path.lexists(folder):
        _check_replaceable(folder, force)
    wheel = fetch_wheel(version)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".patchkit-fetch-", dir=folder.parent))
    except OSError as problem:
        raise UsageError(
            f"{folder} can't be written: {problem.strerror}", hint="give another --into"
        ) from None
    new, old = aside / "new", aside / "old"
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(new)  # refuses absolute and parent paths
        if folder.is_dir():
            os.replace(folder, old)
        os.replace(new, folder)
    except OSError as problem:
        if old.is_dir() and not folder.exists():
            os.replace(old, folder)
        raise CannotRun(
            f"sglang {version} could not be unpacked: {problem.strerror}",
            hint="is there room on the disk?",
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        wheel.unlink()
        raise CannotRun(
            f"the cached wheel of {version} was damaged and is removed",
            hint="try again",
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return wheel


def _check_replaceable(folder: Path, force: bool) -> None:
    if os.path.islink(folder) or not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="give another --into")
    held = sorted(one.name for one in folder.iterdir())
    if held and not force:
        raise UsageError(
            f"{folder} is there already", hint="give another --into, or --force"
        )
    # someone's home must survive `--into ~ --force`
    foreign = [name for name in held if not re.match(_UNPACKED, name)]
    if foreign:
        raise Refused(
            f"{folder} holds more than an SGLang tree ({foreign[0]}), so --force does"
            " not replace it",
            hint="give another --into, or remove that folder yourself",
        )
