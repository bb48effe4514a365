"""Real SGLang releases, fetched once into a cache git ignores; the command; git."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("PATCHKIT_CACHE", str(ROOT / ".cache"))
CACHE = Path(os.environ["PATCHKIT_CACHE"])

#: Every SGLang release on PyPI from 0.4.6 to 0.5.23 (0.5.0 was never published).
RELEASES = tuple((ROOT / "tests" / "releases.txt").read_text().split())
#: At least one of each era; these run by default.
SAMPLE = tuple((ROOT / "tests" / "sample.txt").read_text().split())

#: What a tree needs for patching (running it needs all of it).
_PARTS = (
    "sglang/__init__.py",
    "sglang/version.py",
    "sglang/_version.py",
    "sglang/srt/models/deepseek_v2.py",
    "sglang/srt/models/llama_eagle3.py",
    "sglang/srt/models/kimi_k25.py",
    "sglang/srt/layers/logits_processor.py",
    "sglang/srt/managers/scheduler.py",
    "sglang/srt/speculative/eagle_worker.py",
    "sglang/srt/speculative/eagle_worker_v2.py",
    "sglang/srt/server_args.py",
)


def _unpack(version: str, folder: Path, wanted: Callable[[str], bool]) -> Path:
    """Unpack part of a release, once, also with several test processes at work."""
    from patchkit.fetch import fetch_wheel

    if not folder.is_dir():
        wheel = fetch_wheel(version)
        aside = folder.with_name(f".{folder.name}-{os.getpid()}")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(aside, [n for n in archive.namelist() if wanted(n)])
        try:
            os.replace(aside, folder)
        except OSError:  # another process was faster
            shutil.rmtree(aside)
    return folder


def stock(version: str) -> Path:
    """A folder that holds the patched files of a release, those that recipes look at
    besides (but for other models), and its RECORD. Read only."""
    return _unpack(
        version,
        CACHE / "parts-4" / version,
        lambda name: (
            name in _PARTS
            or name.startswith("sglang/srt/model_executor/")
            or name.endswith(".dist-info/RECORD")
        ),
    )


def release_tree(version: str) -> Path:
    """A folder that holds the whole ``sglang/`` of a release. Read only."""
    return _unpack(version, CACHE / "trees" / version, lambda name: True)


def run_patchkit(
    *arguments: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own, without a terminal or $SGLANG_DIR."""
    inherited = {k: v for k, v in os.environ.items() if k != "SGLANG_DIR"}
    return subprocess.run(
        [sys.executable, "-m", "patchkit", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=inherited | (env or {}),
        cwd=cwd,
    )


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder`` with its bytes; journals and bytecode left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not {".git", ".patchkit", "__pycache__"}
        & set(path.relative_to(folder).parts)
    }


def make_checkout(tree: Path, folder: Path) -> Path:
    """A git checkout with the release's files at python/sglang, committed."""
    shutil.copytree(tree / "sglang", folder / "python" / "sglang")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "stock")
    return folder


def git(folder: Path, *arguments: str) -> str:
    """git as a user with a plain identity and no configuration."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "Some User",
        "GIT_AUTHOR_EMAIL": "user@example.org",
        "GIT_COMMITTER_NAME": "Some User",
        "GIT_COMMITTER_EMAIL": "user@example.org",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
