"""``patchkit verify --engine`` on real releases: SGLang's own engine on this CPU."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import enginekit as kit
import pytest
import support

from patchkit.verify.checks import choose
from patchkit.verify.interpreter import has_torch

pytestmark = [
    pytest.mark.probe,
    pytest.mark.skipif(not has_torch(kit.PYTHON), reason="needs the verify extra"),
]
LATE = ("num_layers // 2, num_layers - 3]", "num_layers // 2, num_layers - 2]")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A private copy of 0.5.9: hard links, so write by replacing only."""
    folder = tmp_path / "0.5.9"
    shutil.copytree(
        support.release_tree("0.5.9"),
        folder,
        copy_function=os.link,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return folder


def verify(tree: Path, *options: str) -> tuple[int, dict[str, Any]]:
    arguments = ["verify", "--json", "--python", kit.PYTHON, "--target", str(tree)]
    done = support.run_patchkit(*arguments, *options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def checks(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in report["checks"]}


def apply(tree: Path, *recipes: str) -> None:
    done = support.run_patchkit("apply", *recipes, "--target", str(tree))
    assert done.returncode == 0, done.stderr


def test_a_patched_release(tree: Path) -> None:
    apply(tree, "debug-logging", "draft-step-positions")
    names = ("engine-accept", "engine-ids", "engine-gate-on", "engine-steps")
    code, report = verify(tree, *(word for name in names for word in ("--only", name)))
    found = checks(report)
    said = {name: (one["verdict"], one["reason"]) for name, one in found.items()}
    assert code == 0, said
    assert {verdict for verdict, _ in said.values()} == {"PASS"}
    assert {*said} == {*names}
    assert all(one["compared"] > 5 for one in found.values())
    assert not any(one["known_defects"] for one in found.values())


@pytest.mark.engines
def test_a_stock_release(tree: Path) -> None:
    code, report = verify(tree, "--engine")
    assert code == 0, report
    found = checks(report)
    assert [*found] == choose([], [], "only")
    absent = {"engine-gate-off", "engine-gate-on"}
    for name, one in found.items():
        assert one["verdict"] == ("NOT APPLICABLE" if name in absent else "PASS")
    assert {d["name"] for one in found.values() for d in one["known_defects"]} == {
        *("capture-before-all-reduce", "draft-positions"),
    }


@pytest.mark.engines
def test_the_recipe_for_fusion(tree: Path) -> None:
    apply(tree, "debug-logging", "capture-after-allreduce")
    code, report = verify(tree, "--engine")
    assert code == 0, report
    assert {one["verdict"] for one in report["checks"]} == {"PASS"}
    known = [d["name"] for one in report["checks"] for d in one["known_defects"]]
    assert known == ["draft-positions"]


@pytest.mark.engines
def test_a_layer_late_is_named(tree: Path) -> None:
    file = tree / "sglang/srt/models/deepseek_v2.py"
    text = file.read_text()
    assert text.count(LATE[0]) == 1
    file.unlink()
    file.write_text(text.replace(*LATE))
    more = ("--baseline", "pypi:0.5.9", "--only", "engine-accept")
    code, report = verify(tree, *more)
    reason = checks(report)["engine-accept"]["reason"]
    assert code == 1 and reason.startswith("slot 2 "), report
