"""Before anything runs: which checks, in which order, under which interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patchkit.errors import CannotRun, UsageError
from patchkit.verify import interpreter, order
from patchkit.verify.checks import CHECKS, choose, jobs_for
from patchkit.verify.evidence import Promise
from patchkit.verify.interpreter import (
    choose_python,
    managed_python,
    pins,
    set_up,
)
from patchkit.verify.promises import Promises

# -- checks and jobs --------------------------------------------


def test_choosing_checks() -> None:
    assert choose([], [], "too") == list(CHECKS)
    usual, engines = choose([], []), choose([], [], "only")
    assert usual + engines == list(CHECKS)
    assert "bf16" in usual and all(name.startswith("engine-") for name in engines)
    assert choose(["engine-tp"], []) == ["engine-tp"]
    with pytest.raises(UsageError, match="run on a CPU"):
        choose([], [], "too", device="cuda")
    assert choose(["draft", "import"], []) == ["import", "draft"]
    assert "bf16" not in choose([], ["bf16"])
    with pytest.raises(UsageError, match="no check is called 'captur'") as wrong:
        choose(["captur"], [])
    assert wrong.value.hint == "did you mean capture?"
    with pytest.raises(UsageError, match="leave no check"):
        choose(["draft"], ["draft"])


def names(*chosen: str, stock: bool = True, gated: bool = False) -> set[str]:
    baseline = None if stock else {"b": None}
    promises = Promises((Promise("aux", ("target.states",)),) if gated else ())
    jobs = jobs_for(
        chosen, {"a": None}, baseline, promises, setters=["default", "explicit"]
    )
    return {job.name for job in jobs}


def test_only_what_a_check_needs_is_run() -> None:
    assert names("capture") == {"patched"}
    assert names("capture", stock=False) == {"patched", "baseline"}
    assert names("gate-on", stock=False) == {"patched", "baseline"}
    assert names("gate-on", stock=False, gated=True) == {"patched", "baseline", "gated"}
    assert names("capture-order") == {"patched-order"}


def test_the_gate_is_set_for_gated_jobs_only() -> None:
    promises = Promises((Promise("aux", ("target.states",)),))
    jobs = jobs_for(choose([], []), {}, {}, promises, setters=["explicit"])
    for job in jobs:
        assert bool(job.environment) is job.name.startswith("gated"), job
        assert (job.dtype == "bfloat16") is job.name.endswith("bf16")
        assert (job.ranks == 2) is job.name.endswith(("tp2", "fusion"))


# -- the order of a server's start --------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runner.model.set_eagle3_layers_to_capture()\n", ["default", "explicit"]),
        ("model.set_eagle3_layers_to_capture(ids)\n", ["explicit"]),
        ("model.set_eagle3_layers_to_capture(layer_ids=ids)\n", ["explicit"]),
        ("# set_eagle3_layers_to_capture()\n", []),
        ("set_eagle3_layers_to_capture((\n", []),
        ("", []),
    ],
)
def test_setters(text: str, expected: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "srt" / "model_executor" / "deep"
    folder.mkdir(parents=True)
    (folder / "runner.py").write_text(text, "utf-8")
    assert order.setters(tmp_path) == expected


# -- interpreters --------------------------------------------


def fake_python(file: Path, code: int) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\nexit {code}\n")
    file.chmod(0o755)
    return str(file)


def test_who_owns_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "env/lib/python3.11/site-packages/sglang"
    package.mkdir(parents=True)
    other = fake_python(tmp_path / "other", 0)
    monkeypatch.setenv("PATCHKIT_PROBE_PYTHON", other)
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path / "cache"))
    assert choose_python(package, None) == (other, "$PATCHKIT_PROBE_PYTHON")
    owner = fake_python(tmp_path / "env/bin/python", 0)
    assert choose_python(package, None)[0] == owner
    fake_python(tmp_path / "env/bin/python", 1)
    assert choose_python(package, None)[0] == other
    named = fake_python(tmp_path / "named", 0)
    assert choose_python(package, named) == (named, "--python")


def test_no_interpreter_is_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path))
    monkeypatch.delenv("PATCHKIT_PROBE_PYTHON", raising=False)
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path / "bare", 1))
    with pytest.raises(CannotRun) as told:
        choose_python(tmp_path / "sglang", None)
    assert "--setup" in told.value.hint
    with pytest.raises(CannotRun):
        choose_python(tmp_path / "sglang", str(tmp_path / "bare"))


def test_an_old_python_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path))
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\necho 3 10\n")
    old.chmod(0o755)
    with pytest.raises(CannotRun, match=r"is python 3\.10, .* needs 3\.11") as told:
        set_up(lambda text: None, python=str(old))
    assert "--setup --python" in told.value.hint
    assert [one.name for one in tmp_path.iterdir()] == ["python3.10"]


def test_a_managed_environment_of_another_version_or_device_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made by ``--setup --python``, or with CUDA: it can do without a device, too."""
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(interpreter, "pins", lambda: ["torch==2.13.0"])
    assert managed_python("cpu") is None
    made = {}
    for version, device in (("3.12", "cuda"), ("3.13", "cpu")):
        folder = interpreter._managed_folder(version, device)
        folder.mkdir()
        made[device] = str(folder / "bin" / "python")
        assert managed_python(device) != made[device]  # broken off
        (folder / "complete").touch()
        assert managed_python(device) == made[device]
    assert managed_python("cuda") == made["cuda"]
    (tmp_path / Path(made["cpu"]).parts[-3] / "complete").unlink()
    assert managed_python("cpu") == made["cuda"]


def test_the_pins_are_those_of_the_extra() -> None:
    found = pins()
    assert all("==" in one for one in found)
    assert {"torch", "transformers"} <= {one.partition("==")[0] for one in found}
