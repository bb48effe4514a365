"""What is killed: a start state, a command, and the trees that are right."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from support import git, make_checkout

from patchkit.workspace.standing import data_hash

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Box, snapshot

CASES = Path(__file__).parents[2] / "fixtures" / "cases" / "debug_logging"
LAYOUTS = ("checkout", "site-packages")
#: path in the package -> the case whose file is put there
PATCHED = {
    "srt/models/deepseek_v2.py": "deepseek_v2-all_layers",
    "srt/models/llama_eagle3.py": "llama_eagle3-plain",
    "srt/layers/logits_processor.py": "logits_processor-list",
}
OTHER = "srt/models/kimi_k25.py"

OWN_RECIPE = '''"""Check the draft's input."""

from patchkit.recipe import Import, Method, Recipe, insert_first


class OwnCheck(Recipe):
    version = 1
    summary = "check the draft's input"
    edits = {
        "srt/models/llama_eagle3.py": (
            Method("check", "LlamaModel", "forward", "check_input"),
        ),
        "srt/models/kimi_k25.py": (Import("import", "import json"),),
    }

    def check_input(self, function):
        return insert_first(
            function, lambda depth: self.lines(["assert forward_batch is not None"])
        )
'''


@dataclass(frozen=True)
class Scenario:
    """``first`` leads to the start state, ``command`` is killed. RECIPES in a command
    stands for the folder of the user's own recipe. ``thorough``: its repair is killed,
    too, and it is tried on a full disk."""

    name: str
    first: tuple[str, ...]
    command: str
    edits: bool = False
    foreign: bool = False
    layouts: tuple[str, ...] = LAYOUTS
    thorough: bool = False


APPLY = "apply debug-logging"
OWN = "apply own-check --recipes RECIPES"
SCENARIOS = (
    Scenario("first apply", (), APPLY, thorough=True),
    Scenario("other options", (APPLY,), f"{APPLY} -O layers=all"),
    Scenario("second recipe", (APPLY,), OWN),
    Scenario(
        "over edits", (APPLY,), f"{APPLY} -O layers=all", edits=True, thorough=True
    ),
    Scenario("revert", (APPLY,), "revert", edits=True, thorough=True),
    Scenario("revert one", (APPLY, OWN), "revert own-check --recipes RECIPES"),
    Scenario("foreign apply", (APPLY,), APPLY, foreign=True),
    Scenario("foreign revert", (APPLY,), "revert", foreign=True),
    Scenario("apply --commit", (), f"{APPLY} --commit", layouts=("checkout",)),
)


@dataclass(frozen=True)
class Stage:
    """A scenario made ready in a box: ``start`` is kept there, and the snapshots of
    the tree before, after, and without patchkit (the user's edits only)."""

    box: Box
    scenario: Scenario
    layout: str
    before: dict[str, Any]
    after: dict[str, Any]
    undone: dict[str, Any]
    git_dir: dict[str, Any]

    @property
    def commits(self) -> bool:
        return "--commit" in self.scenario.command

    def words(self, command: str) -> tuple[str, ...]:
        filled = command.replace("RECIPES", str(self.box.base / "recipes"))
        return (*filled.split(), "--target", str(self.box.tree))

    def user_git_dir(self) -> dict[str, Any]:
        """The user's own repository, all but our journal."""
        return snapshot(self.box.tree / ".git", skip=("patchkit",))


def prepare(box: Box, scenario: Scenario, layout: str) -> Stage:
    recipes = box.base / "recipes"
    recipes.mkdir(parents=True, exist_ok=True)
    (recipes / "own_check.py").write_text(OWN_RECIPE)
    box.clear()
    _make_tree(box, layout)
    if scenario.edits:
        _edit(box, layout)
    undone = snapshot(box.tree)
    box.clear()
    _make_tree(box, layout)
    stage = Stage(box, scenario, layout, {}, {}, undone, {})
    for command in scenario.first:
        box.here(*stage.words(command))
    if scenario.edits:
        _edit(box, layout)
    if scenario.foreign:
        shutil.rmtree(box.journal)
    box.keep("start")
    before, git_dir = snapshot(box.tree), stage.user_git_dir()
    box.here(*stage.words(scenario.command))
    after = snapshot(box.tree)
    # what else will be run, so that forks find the engine's answers remembered
    box.here(*stage.words("revert"))
    assert snapshot(box.tree) == undone
    return Stage(box, scenario, layout, before, after, undone, git_dir)


def _make_tree(box: Box, layout: str) -> None:
    """A tree as small as recipes take, with the RECORD that a wheel would have."""
    site = box.case / "site"
    files = {f"sglang/{p}": (CASES / n / "before.py").read_bytes()
             for p, n in PATCHED.items()}  # fmt: skip
    files[f"sglang/{OTHER}"] = b"import torch\n\nWIDTH = 7168\n"
    files["sglang/__init__.py"] = b""
    files["sglang/version.py"] = b'__version__ = "0.5.9"\n'
    record = "".join(f"{p},{data_hash(d)},{len(d)}\n" for p, d in files.items())
    files["sglang-0.5.9.dist-info/RECORD"] = record.encode()
    for path, data in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
    if layout == "site-packages":
        site.rename(box.tree)
        return
    make_checkout(site, box.tree)
    shutil.rmtree(site)
    shutil.rmtree(box.tree / ".git" / "hooks", ignore_errors=True)
    # the user is at work: something staged, and more on top that is not
    other = package(box, layout) / OTHER
    other.write_bytes(other.read_bytes() + b"\n# staged by the user\n")
    git(box.tree, "add", "-A")
    other.write_bytes(other.read_bytes() + b"# and not staged\n")


def _edit(box: Box, layout: str) -> None:
    for path in PATCHED:
        file = package(box, layout) / path
        edited = b"# the user's own\n" + file.read_bytes() + b"\n# \xc3\xa9dited\n"
        file.write_bytes(edited)


def package(box: Box, layout: str) -> Path:
    return box.tree / ("python/sglang" if layout == "checkout" else "sglang")
