"""The probe on stock and on damaged trees, in the interpreter of the verify extra."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import release_tree, run_patchkit

pytestmark = pytest.mark.probe

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("PATCHKIT_PROBE_PYTHON", sys.executable)

#: float32, the same in every release; a change means that the fixture changed.
DIGEST = {
    "ext": 209.353269,
    "aux": 3736.927102,
    "draft": 93.324864,
    "dec": 200.666833,
    "decaux": 831.964998,
}
WITHOUT_CAPTURE = ("0.4.9", "0.5.3")
WITH_CAPTURE = ("0.5.5", "0.5.9", "0.5.15", "0.5.23")

AUX = ["deepseek_v2.aux"] * 3 + ["logits_processor.concat"]
DRAFT = ["llama_eagle3.fc_in", "llama_eagle3.fc_out", "logits_processor.concat"]


@pytest.fixture(scope="module", autouse=True)
def _needs_the_verify_extra() -> None:
    check = (
        "import importlib.util as u\n"
        "names = ('torch', 'transformers')\n"
        "print(*[name for name in names if u.find_spec(name) is None])"
    )
    done = subprocess.run(
        [PYTHON, "-c", check], capture_output=True, text=True, check=False
    )
    missing = done.stdout.split() if done.returncode == 0 else [PYTHON]
    if missing:
        pytest.skip(
            f"needs the verify extra ({', '.join(missing)} missing): "
            "pip install -e '.[verify]', or set PATCHKIT_PROBE_PYTHON"
        )


@pytest.fixture
def probe(tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Run the probe: exit code, JSON report, stderr."""

    def run(tree: Path, *options: str) -> tuple[int, dict[str, Any], str]:
        file = tmp_path / "report.json"
        command = [PYTHON, "-m", "patchkit.verify.probe", "--target", str(tree)]
        done = subprocess.run(
            [*command, "--json", str(file), *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert file.exists(), done.stderr
        return done.returncode, json.loads(file.read_text("utf-8")), done.stderr

    return run


Run = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[..., Path]:
    """A copy of a release in which one pattern of one file was replaced once."""

    def make(version: str, file: str, pattern: str, replacement: str) -> Path:
        copy = tmp_path / version
        # Hard links: only the damaged file is a file of its own.
        shutil.copytree(release_tree(version), copy, copy_function=os.link)
        path = copy / "sglang" / "srt" / file
        text, count = re.subn(pattern, replacement, path.read_text("utf-8"), count=1)
        assert count == 1, f"{version}: {pattern!r} is not in {file}"
        path.unlink()
        path.write_text(text, "utf-8")
        return copy

    return make


def assert_clean(report: dict[str, Any], tree: Path) -> None:
    assert report["problems"] == []
    assert report["weights"] == {
        "target": {"unwritten": []},
        "draft": {"unwritten": []},
    }
    assert report["draft"] == {"fc_calls": 1}
    for file in report["files"].values():
        assert Path(file).is_relative_to(tree)
    phases = {entry["phase"] for entry in report["standins"]["called"]}
    assert phases <= {"import sglang"}
    assert all(entry["nonfinite"] == 0 for entry in report["observations"])


@pytest.mark.parametrize("version", WITH_CAPTURE)
def test_release_with_capture(version: str, probe: Run) -> None:
    tree = release_tree(version)
    code, report, errors = probe(tree)
    assert (code, report["verdict"]) == (0, "PASS"), errors
    assert_clean(report, tree)
    assert report["digest"] == pytest.approx(DIGEST, abs=2e-6)
    assert report["capture"]["layers"] == [2, 5, 7]
    assert report["capture"]["equal"] == {"extend": True, "decode": True}
    seen = report["observations"]
    assert [entry["site"] for entry in seen] == AUX + DRAFT + AUX
    aux, concat, fc_in = seen[:3], seen[3], seen[4]
    assert [entry["layer"] for entry in aux] == [2, 5, 7]
    assert (concat["shape"], concat["parts"]) == ([8, 192], 3)
    assert concat["norm"] == pytest.approx(
        math.sqrt(sum(entry["norm"] ** 2 for entry in aux))
    )
    assert fc_in["norm"] == concat["norm"]


@pytest.mark.parametrize("version", WITHOUT_CAPTURE)
def test_release_without_capture(version: str, probe: Run) -> None:
    tree = release_tree(version)
    code, report, errors = probe(tree)
    assert (code, report["verdict"]) == (0, "PASS"), errors
    assert_clean(report, tree)
    assert report["capture"]["available"] is False
    assert report["capture"]["equal"] == {}
    assert report["digest"] == pytest.approx(DIGEST, abs=2e-6)
    assert [entry["site"] for entry in report["observations"]] == DRAFT


def test_bfloat16(probe: Run) -> None:
    tree = release_tree("0.5.9")
    code, report, errors = probe(tree, "--dtype", "bfloat16")
    assert code == 0, errors
    assert_clean(report, tree)
    assert {entry["dtype"] for entry in report["observations"]} == {"bfloat16"}
    assert report["digest"] == pytest.approx(DIGEST, rel=0.01)


def test_the_target_is_not_written_to(tmp_path: Path, probe: Run) -> None:
    copy = tmp_path / "0.5.9"
    shutil.copytree(
        release_tree("0.5.9"),
        copy,
        copy_function=os.link,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    before = sorted(copy.rglob("*"))
    assert probe(copy)[0] == 0
    assert sorted(copy.rglob("*")) == before


def test_logging_of_the_tree_is_shown(damaged: Callable[..., Path], probe: Run) -> None:
    tree = damaged(
        "0.5.9",
        "models/llama_eagle3.py",
        r"\n(        hidden_states = forward_batch.spec_info.hidden_states\n)",
        r"\n\1        import logging\n"
        r"        logging.getLogger('sglang').info('EAGLE3_DEBUG[here]')\n",
    )
    code, _, errors = probe(tree)
    assert code == 0
    assert re.search(r"^\[[-\d :,]+\] EAGLE3_DEBUG\[here\]$", errors, re.MULTILINE)


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "problem"),
    [
        (
            "models/deepseek_v2.py",
            r"aux_hidden_states\.append\(hidden_states \+ residual\)",
            "aux_hidden_states.append(hidden_states)",
            "extend: the captured states are not the streams",
        ),
        (
            "layers/logits_processor.py",
            r"torch\.cat\(aux_hidden_states, dim=-1\)",
            "torch.cat(aux_hidden_states[::-1], dim=-1)",
            "extend: the captured states are not the streams",
        ),
        (
            "models/llama_eagle3.py",
            r"hidden_states = self\.fc\(hidden_states\)",
            "hidden_states = hidden_states[:, : embeds.shape[-1]]",
            "draft: fc ran 0 times, not once",
        ),
        (
            "models/llama_eagle3.py",
            r"(def load_weights\(self, weights[^\n]*\n)",
            r"\1        weights = [w for w in weights if 'hidden_norm' not in w[0]]\n",
            "draft: no weight reached model.midlayer.hidden_norm.weight",
        ),
    ],
    ids=["no-residual", "reversed", "fc-skipped", "weight-dropped"],
)
def test_damage_is_noticed(
    file: str,
    pattern: str,
    replacement: str,
    problem: str,
    damaged: Callable[..., Path],
    probe: Run,
) -> None:
    code, report, errors = probe(damaged("0.5.9", file, pattern, replacement))
    assert (code, report["verdict"]) == (1, "FAIL"), errors
    assert any(line.startswith(problem) for line in report["problems"]), report
    assert f"FAIL: {problem}" in errors


def test_a_folder_without_sglang_cannot_run(tmp_path: Path, probe: Run) -> None:
    code, report, errors = probe(tmp_path)
    assert (code, report["verdict"]) == (4, "CANNOT RUN")
    assert report["failed_step"]["step"] == "import sglang"
    assert "No module named 'sglang'" in errors


TAP_LINE = re.compile(r"EAGLE3_DEBUG\[(?P<site>[\w.]+)\] (?P<fields>.*)")


@pytest.mark.parametrize("version", ["0.5.3", "0.5.9", "0.5.23"])
def test_taps_say_what_the_oracle_saw(
    version: str, tmp_path: Path, probe: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / version
    shutil.copytree(release_tree(version), tree, copy_function=os.link)
    done = run_patchkit("apply", "debug-logging", "--target", tree)
    assert done.returncode == 0, done.stderr
    code, quiet, errors = probe(tree)
    assert code == 0 and "EAGLE3_DEBUG[" not in errors
    monkeypatch.setenv("EAGLE3_DEBUG", "1")
    code, report, errors = probe(tree)
    assert code == 0, errors
    assert report["digest"] == quiet["digest"]

    lines = list(TAP_LINE.finditer(errors))
    seen = report["observations"]
    assert [line["site"] for line in lines] == [entry["site"] for entry in seen]
    for line, entry in zip(lines, seen):
        fields = dict(re.findall(r"(\w+)=(\S+)", line["fields"]))
        assert fields["shape"] == "x".join(map(str, entry["shape"]))
        assert fields["dtype"] == entry["dtype"]
        for name in ("norm", "mean", "absmax"):
            said = pytest.approx(float(fields[name]), rel=1e-4, abs=1e-6)
            assert entry[name] == said, (line[0], entry)
        if "layer" in entry:
            assert fields["layer"] == str(entry["layer"])
