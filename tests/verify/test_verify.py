"""``patchkit verify`` on real releases, stock and patched, as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import support

from patchkit.verify.checks import CHECKS, choose

pytestmark = pytest.mark.probe

#: Run unless more is asked for.
USUAL = choose([], [])
LAST, PARTS, ORDER = "logprobs-last", "capture-before-all-reduce", "graph-layers"
#: Known defects of every release with capture.
SILENT = {"unsorted-ids", "embedding-ids", "width-guard", "weight-guard"}
#: Known defects of the stock release.
STOCK = {
    "0.5.5": {LAST, PARTS, ORDER, *SILENT},
    "0.5.9": {LAST, PARTS, ORDER, "kimi-delegates", *SILENT},
    "0.5.15": SILENT,
    "0.5.23": SILENT,
}

WholeTree = Callable[..., Path]


@pytest.fixture
def verify(probe_python: str) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Exit code and JSON report of the command."""

    def run(tree: Path, *options: str) -> tuple[int, dict[str, Any]]:
        done = command(probe_python, tree, "--json", *options)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


Verify = Callable[..., tuple[int, dict[str, Any]]]


def command(
    python: str, tree: Path, *options: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    arguments = ["verify", "--target", str(tree), "--python", python, *options]
    done: subprocess.CompletedProcess[str] = support.run_patchkit(*arguments, env=env)
    return done


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["verdict"] for one in report["checks"]}


def defects(report: dict[str, Any]) -> set[str]:
    return {
        defect["name"] for one in report["checks"] for defect in one["known_defects"]
    }


#: Unless a recipe promises them.
NOT_PROMISED = {"capture-switch", "capture-removed"}
#: With nothing applied.
NOT_THERE = {"gate-off", "gate-on", "revert", *NOT_PROMISED}
#: Of the release.
ABSENT = {
    "0.4.9": {
        *("capture", "fusion", "capture-order", "kimi-wrapper"),
        *("unsorted-ids", "embedding-ids"),
    },
    "0.5.5": {"kimi-wrapper"},
}


@pytest.mark.parametrize("version", sorted(STOCK))
def test_a_stock_release(version: str, verify: Verify) -> None:
    code, report = verify(support.release_tree(version))
    assert code == 0, report
    expected = dict.fromkeys(USUAL, "PASS")
    absent = NOT_THERE | ABSENT.get(version, set())
    expected |= dict.fromkeys(absent, "NOT APPLICABLE")
    assert verdicts(report) == expected
    assert defects(report) == STOCK[version]
    assert report["sglang"] == version
    assert report["peak_mb"] < 1000


@pytest.mark.parametrize("version", ["0.5.5", "0.5.9", "0.5.23"])
def test_a_patched_release(
    version: str, verify: Verify, whole_tree: WholeTree, tmp_path: Path
) -> None:
    tree = whole_tree(version)
    done = support.run_patchkit(
        "apply", "debug-logging", "-O", "layers=all", "--target", tree
    )
    assert done.returncode == 0, done.stderr
    before = names_and_times(tree)
    file = tmp_path / "report.xml"
    kept = tmp_path / "kept"
    code, report = verify(tree, "--junit", str(file), "--keep", str(kept))
    assert code == 0, report
    assert "EAGLE3_DEBUG[deepseek_v2.aux]" in (kept / "gated" / "0.log").read_text()
    assert "EAGLE3_DEBUG[" not in (kept / "patched" / "0.log").read_text()
    assert list((kept / "gated" / "taps-0").iterdir())
    absent = dict.fromkeys(NOT_PROMISED | ABSENT.get(version, set()), "NOT APPLICABLE")
    assert verdicts(report) == dict.fromkeys(USUAL, "PASS") | absent
    assert defects(report) == STOCK[version]
    assert names_and_times(tree) == before
    suite = ElementTree.parse(file).getroot()[0]
    assert [case.attrib["name"] for case in suite] == USUAL


def test_what_is_kept_goes_into_an_empty_folder(
    probe_python: str, tmp_path: Path
) -> None:
    (tmp_path / "mine").touch()
    tree = support.release_tree("0.5.9")
    done = command(probe_python, tree, "--keep", str(tmp_path))
    assert done.returncode == 2, done
    assert "is not empty" in done.stderr


def names_and_times(folder: Path) -> dict[str, int]:
    return {str(one): one.stat().st_mtime_ns for one in sorted(folder.rglob("*"))}


def test_a_release_without_capture(verify: Verify) -> None:
    code, report = verify(support.release_tree("0.4.9"))
    assert code == 0, report
    found = verdicts(report)
    missing = NOT_THERE | ABSENT["0.4.9"]
    assert {k for k, v in found.items() if v == "NOT APPLICABLE"} == missing
    assert {v for k, v in found.items() if k not in missing} == {"PASS"}


def test_a_patched_file_that_needs_a_gpu(verify: Verify, whole_tree: WholeTree) -> None:
    """0.4.9's EAGLE worker can't be imported on a CPU: that is told, and the models
    are judged; a patch of it that can't be imported is wrong all the same."""
    tree = whole_tree("0.4.9")
    worker = tree / "sglang/srt/speculative/eagle_worker.py"
    done = support.run_patchkit("apply", "draft-step-positions", "--target", tree)
    assert done.returncode == 0, done.stderr
    some = ("--only", "import", "--only", "gate-off")
    code, report = verify(tree, *some)
    assert code == 0 and set(verdicts(report).values()) == {"PASS"}, report
    assert "not run: eagle_worker, which can't be imported here" in str(report)
    worker.write_text("import no_such_module\n" + worker.read_text())
    code, report = verify(tree, *some)
    assert code == 1 and verdicts(report)["import"] == "FAIL", report


def test_a_tree_without_the_drafts_side(verify: Verify, whole_tree: WholeTree) -> None:
    tree = whole_tree("0.5.9")
    options = [f"-O{name}=yes" for name in ("logits", "draft", "force")]
    done = support.run_patchkit(
        "apply", "remove-aux-capture", *options, "--target", tree
    )
    assert done.returncode == 0, done.stderr
    there = {"weights", "golden", "tensor-parallel", "capture-removed", "gate-off"}
    gone = {"draft", "width-guard", "weight-guard"}
    code, report = verify(tree, *(f"--only={name}" for name in {*there, *gone}))
    assert code == 0, report
    expected = dict.fromkeys(there, "PASS") | dict.fromkeys(gone, "NOT APPLICABLE")
    assert verdicts(report) == expected


def test_only_and_strict_and_what_github_is_told(
    probe_python: str, whole_tree: WholeTree
) -> None:
    tree = whole_tree("0.5.9")
    done = command(
        probe_python,
        tree,
        *("--only", "capture", "--only", "gate-on", "--strict"),
        env={"GITHUB_ACTIONS": "true"},
    )
    assert done.returncode == 1, done.stdout
    assert "known defect: logprobs-last" in done.stdout
    assert "weights" not in done.stdout
    assert "::error title=patchkit verify capture::known defect" in done.stderr
    assert all(len(line) < 80 for line in done.stdout.splitlines()[1:])


@pytest.mark.parametrize(
    ("file", "step"),
    [
        ("srt/server_args.py", "import sglang"),
        ("srt/layers/dp_attention.py", "distributed"),
    ],
)
def test_a_set_up_that_fails_is_never_a_pass(
    file: str, step: str, verify: Verify, whole_tree: WholeTree
) -> None:
    """As of a release that this patchkit does not know."""
    tree = whole_tree("0.5.9")
    path = tree / "sglang" / file
    text = path.read_text("utf-8")
    path.unlink()
    if step == "distributed":
        text = text.replace(
            "def initialize_dp_attention(", "def renamed_in_this_release("
        )
    else:
        text += "\nraise ImportError('needs a GPU')\n"
    path.write_text(text, "utf-8")
    code, report = verify(tree, "--only", "import", "--only", "capture")
    assert code == 4, report
    assert set(verdicts(report).values()) == {"CANNOT RUN"}
    first, *others = report["checks"]
    assert "needs a GPU" in first["reason"] or "initialize_dp" in first["reason"]
    assert first["details"]
    assert all("see import" in one["reason"] for one in others)
    assert not any(one["details"] for one in others)


def test_a_baseline_of_another_release(verify: Verify) -> None:
    """A tree of its own with a probe of its own; all releases compute the same."""
    tree = support.release_tree("0.5.9")
    code, report = verify(tree, "--baseline", "pypi:0.5.8", "--only", "gate-off")
    assert code == 0, report
    (check,) = report["checks"]
    assert check["compared"] > 30


def test_a_release_that_is_too_old_is_told_before_a_probe_starts() -> None:
    """Whatever the interpreter: this one would fail."""
    tree = support.stock("0.4.8.post1")
    done = command("/no/such/python", tree)
    assert (done.returncode, done.stdout) == (4, "")
    error, hint = done.stderr.strip().splitlines()
    assert error.startswith(
        "error: SGLang 0.4.8.post1: verify covers releases from 0.4.9"
    )
    assert hint.startswith("next: ") and "--only revert" in hint
    done = command("/no/such/python", tree, "--only", "revert")
    assert "NOT APPLICABLE" in done.stdout, done.stderr


def test_help_names_the_checks() -> None:
    done = support.run_patchkit("verify", "--help", env={"COLUMNS": "80"})
    for name in CHECKS:
        assert f"\n  {name}  " in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_an_interpreter_without_torch_cannot_run(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    os.chmod(bare, 0o755)
    done = command(str(bare), support.stock("0.5.9"))
    assert done.returncode == 4
    assert "--setup" in done.stderr
