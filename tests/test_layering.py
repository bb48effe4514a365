"""Who may know whom, what may print, and what each command may import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, stock

#: module or package -> what of patchkit it may import
ARROWS = {
    "model": set(),
    "errors": set(),
    "source": set(),
    "textdiff": {"source"},
    "recipe": {"model", "source"},
    "slices": {"recipe"},
    "engine": {"model", "source", "recipe", "slices"},
    "testing": {"model", "source", "recipe", "engine"},
    "compose": {"model"},
    "registry": {"errors", "model", "recipe"},
    "target": {"errors"},
    "project": {"errors"},
    "fetch": {"errors"},
    "journal": {"errors", "model"},
    "workspace": {
        *("compose", "engine", "errors", "journal", "model", "registry"),
        *("source", "target"),
    },
    "report": {"errors", "model", "textdiff"},
    "outcome": {
        *("errors", "model", "registry", "report", "source", "target"),
        *("textdiff", "workspace", "journal"),
    },
    "draft": {
        *("errors", "model", "registry", "report", "verify", "workspace"),
    },
    "cli": {
        *("errors", "model", "registry", "report", "target", "project", "fetch"),
        *("workspace", "outcome", "journal", "verify", "logs", "watch", "draft"),
        "canary",
    },
    "logs": {"errors", "report"},
    "canary": {"errors", "report"},
    "watch": {"errors", "report", "target"},
    "tap": set(),
    "verify": {
        *("errors", "fetch", "journal", "model", "registry", "report", "target"),
        *("workspace", "fixtures", "canary"),
    },
    "__main__": {"cli"},
    "__init__": set(),
}


def sources() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((ROOT / "patchkit").rglob("*.py")):
        first = path.relative_to(ROOT / "patchkit").parts[0]
        found.append((first.removesuffix(".py"), path))
    return found


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            if node.module == "patchkit":
                names |= {f"patchkit.{alias.name}" for alias in node.names}
            else:
                names.add(node.module)
    return names


@pytest.mark.parametrize(("layer", "path"), sources())
def test_arrows_point_one_way(layer, path):
    ours = {
        name.split(".")[1]
        for name in imported(path)
        if name.startswith("patchkit.") and name != "patchkit.__version__"
    }
    assert ours - {layer} <= ARROWS[layer]


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("[!_]*.py")))
def test_recipes_know_only_the_vocabulary(path):
    allowed = {"patchkit.recipe", "libcst"} | sys.stdlib_module_names
    assert {n for n in imported(path) if n.split(".")[0] != "libcst"} <= allowed


def test_only_the_command_line_prints_and_exits():
    for layer, path in sources():
        if layer == "cli" or "probe" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("print", "sys.exit", "exit"), path


def test_the_engine_is_pure():
    io = {"os", "pathlib", "subprocess", "tempfile", "shutil", "git", "click"}
    for layer, path in sources():
        if layer in ("model", "source", "recipe", "engine", "compose", "textdiff"):
            used = imported(path) - ({"pathlib"} if layer == "model" else set())
            assert not used & io, path


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["--help"], {"libcst", "torch", "git", "patchkit.report"}),
        (["list"], {"libcst", "torch", "git"}),
        (["show", "debug-logging"], {"libcst", "torch", "git"}),
        (["status"], {"libcst", "torch", "git", "patchkit.watch", "psutil"}),
        (
            ["watch", "--replay", "/dev/null"],
            {"libcst", "torch", "git", "rich", "psutil"},
        ),
        (["apply", "debug-logging"], {"libcst", "torch", "git"}),
        (["diff"], {"libcst", "torch", "git"}),
        (["revert"], {"libcst", "torch", "git"}),
        (
            ["logs", str(ROOT / "fixtures" / "logs" / "tp2.log")],
            {"libcst", "torch", "git", "patchkit.tap", "matplotlib", "numpy"},
        ),
    ],
)
def test_import_weight_is_a_feature(arguments, forbidden, tree):
    """Also of a no-op apply and a full revert: LibCST alone takes half a second."""
    folder = tree("0.5.9")
    if arguments[0] not in ("--help", "list", "show", "logs"):
        arguments = [*arguments, "--target", str(folder)]
        command = [sys.executable, "-m", "patchkit", "apply", "debug-logging"]
        subprocess.run([*command, "--target", str(folder)], check=True)
    script = (
        "import sys; from patchkit.cli import run; run(sys.argv[1:]);"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split("LOADED")[1].split())
    assert not loaded & forbidden


def test_nothing_of_sglang_is_in_the_repository():
    """No run of six lines of a patched file, of any sampled release."""
    theirs = set()
    for release in ("0.4.6", "0.5.9", "0.5.23"):
        for path in ("models/deepseek_v2.py", "models/llama_eagle3.py"):
            lines = _code_lines(stock(release) / "sglang/srt" / path)
            theirs |= {tuple(lines[i : i + 6]) for i in range(len(lines) - 5)}
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.txt", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert tracked
    for name in tracked:
        lines = _code_lines(ROOT / name)
        for i in range(len(lines) - 5):
            assert tuple(lines[i : i + 6]) not in theirs, f"{name}: {lines[i]}"


def _code_lines(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if len(line) > 3 and not line.startswith("#")]
