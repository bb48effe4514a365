"""``--device``: which one, with whose kernels, and workers that can't be forked.

No GPU is needed: ``pretend/`` makes torch believe in one, whose tensors lie on the CPU.
What that can't show (tensors on different devices, kernels) was run on a real one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import support

from patchkit.errors import CannotRun
from patchkit.registry import Registry
from patchkit.target import find_package
from patchkit.verify import run
from patchkit.verify.interpreter import choose_python, has_torch
from patchkit.verify.jobs import MODULES, Job, Result
from patchkit.verify.probe import environment
from patchkit.verify.probe.device import Device, NoDevice, choose
from patchkit.verify.session import ProbeFailed, Session
from patchkit.verify.verdict import Verdict
from patchkit.workspace.tree import Workspace

PRETEND = str(Path(__file__).parent / "pretend")
CUDA = Device("cuda", count=1)
KERNELS = Device("cuda", kernels=True, count=1)

WholeTree = Callable[..., Path]


# -- the choice ------------------------------------------------------------------


def package(folder: Path, name: str, text: str = "", file: str = "__init__.py") -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "__init__.py").touch()
    (folder / name / file).write_text(text, "utf-8")


def test_kernels_are_used_where_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert choose("cpu") == Device()
    assert not choose("cuda").kernels and choose("cuda").hidden
    package(tmp_path, "sgl_kernel", "raise ImportError('not asked for')")
    assert choose("cuda").kernels and not choose("cuda").hidden
    assert choose("cpu") == Device()


@pytest.mark.parametrize(
    ("device", "engine", "visible"),
    [(Device(), "1", ""), (CUDA, "1", None), (KERNELS, "0", None)],
)
def test_what_sglang_is_told(device: Device, engine: str, visible: str | None) -> None:
    told = environment.variables(device)
    assert told["SGLANG_USE_CPU_ENGINE"] == engine
    assert told.get("CUDA_VISIBLE_DEVICES") == visible


def test_two_ranks_share_a_device_but_not_under_nccl() -> None:
    assert [CUDA.name(rank) for rank in (0, 1)] == ["cuda:0", "cuda:0"]
    assert [Device("cuda", count=2).name(rank) for rank in (0, 1)] == [
        *("cuda:0", "cuda:1"),
    ]
    assert CUDA.backend(2) == KERNELS.backend(1) == Device().backend(2) == "gloo"
    assert Device("cuda", kernels=True, count=2).backend(2) == "nccl"
    with pytest.raises(NoDevice, match="2 ranks need 2 CUDA devices"):
        KERNELS.backend(2)


@pytest.mark.parametrize(
    ("cuda", "serves"), [("'13.0'", ("cpu", "cuda")), ("None", ("cpu",))]
)
def test_a_cuda_build_is_told_from_others(
    cuda: str, serves: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "torch", f"cuda: str = {cuda}\n", "version.py")
    package(tmp_path, "transformers")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PATCHKIT_PROBE_PYTHON", raising=False)
    for device in ("cpu", "cuda"):
        assert has_torch(sys.executable, device) is (device in serves)
    if "cuda" not in serves:
        with pytest.raises(CannotRun, match="a CUDA build of torch") as told:
            choose_python(tmp_path / "sglang", None, "cuda")
        assert "--setup --device cuda" in told.value.hint


# -- the probe -----------------------------------------------------------------------


def results(python: str, tree: Path, **more: Any) -> dict[str, Result]:
    """Of one run of every call, and of one in bfloat16."""
    jobs = [Job("fp32"), Job("bf16", scenario="short", dtype="bfloat16")]
    with Session(python, tree / "sglang", MODULES.values(), **more) as session:
        return {one.job: one for one in session.run(jobs)}


@pytest.fixture(scope="module")
def on_cpu(probe_python: str) -> dict[str, Result]:
    return results(probe_python, support.release_tree("0.5.9"))


def outputs(found: Mapping[str, Result]) -> dict[tuple[str, str], Any]:
    for one in found.values():
        assert one.ran, (one.error, one.trace, one.output)
    return {(job, n): v for job, one in found.items() for n, v in one.tensors.items()}


@pytest.mark.probe
def test_a_fork_that_cannot_use_cuda_imports_anew(
    probe_python: str, on_cpu: dict[str, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And computes the same, bit for bit."""
    monkeypatch.setenv("PYTHONPATH", PRETEND)
    monkeypatch.setenv("PRETEND_INITIALISED", "1")
    found = results(probe_python, support.release_tree("0.5.9"), device="cuda")
    assert outputs(found) == outputs(on_cpu)
    for one in found.values():
        assert one.facts["fresh"].startswith("Cannot re-initialize CUDA")
        assert one.facts["timings"]["device"] >= 0
    assert {one.facts["fresh"] for one in on_cpu.values()} == {""}


@pytest.mark.probe
def test_without_a_cuda_build_nothing_is_imported(
    probe_python: str, tmp_path: Path
) -> None:
    if has_torch(probe_python, "cuda"):
        pytest.skip("this torch is a CUDA build")
    package(tmp_path, "sglang", "raise SystemExit('imported')")
    with (
        pytest.raises(ProbeFailed) as told,
        Session(probe_python, tmp_path / "sglang", [], device="cuda"),
    ):
        pass
    assert (told.value.step, told.value.hung) == ("device", False)
    assert "is built without CUDA" in told.value.error
    assert not any("Traceback" in line for line in told.value.trace)


def append(file: Path, text: str) -> None:
    """To a file that may have other names."""
    text = file.read_text("utf-8") + text
    file.unlink()
    file.write_text(text, "utf-8")


@pytest.mark.probe
def test_every_check_on_a_pretended_device(
    probe_python: str, whole_tree: WholeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patched tree, with SGLang's own NCCL in reach, which gloo has no use for; and
    a module that would initialise CUDA when imported, before workers are forked."""
    tree = whole_tree("0.5.9")
    append(
        tree / "sglang/srt/distributed/device_communicators/pynccl.py",
        "\n\nclass NCCLLibrary:\n    def __init__(self, path=None):\n"
        "        raise SystemExit('NCCL was loaded')\n",
    )
    append(
        tree / "sglang/srt/server_args.py",
        "\nimport torch as t\ntry:\n    t.cuda._lazy_init()\n"
        "except RuntimeError as no:\n"
        "    assert 'while SGLang is imported' in str(no)\n",
    )
    done = support.run_patchkit("apply", "debug-logging", "--target", tree)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("PYTHONPATH", PRETEND)
    monkeypatch.setattr(run, "choose_python", lambda *_: (probe_python, "the test"))
    workspace = Workspace(
        find_package(str(tree), None), Registry([]), lambda text: None
    )
    skipped = ("revert", "kimi-wrapper", "capture-order")
    report = run.verify(
        workspace, run.Options(skip=skipped, device="cuda"), lambda text: None
    )
    assert report.exit_code() == 0, report.checks
    passed = {one.name for one in report.checks if one.verdict is Verdict.PASS}
    assert passed >= {
        *("capture", "draft", "decode", "golden", "tensor-parallel", "fusion"),
        *("gate-off", "gate-on", "bf16"),
    }
    assert report.device == report.info["device"] == "cuda"
    assert (report.info["devices"], report.info["kernels"]) == (2, False)
    assert report.info["device_name"] == "a pretended device"
    assert report.info["fresh"] == ""


@pytest.mark.probe
def test_a_broken_sgl_kernel_gets_a_stand_in_on_the_cpu(
    probe_python: str,
    on_cpu: dict[str, Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a GPU image that runs on a machine without a driver."""
    package(tmp_path, "sgl_kernel", "raise ImportError('libcuda.so.1: no such file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = results(probe_python, support.release_tree("0.5.9"))
    assert outputs(found) == outputs(on_cpu)
    (shim,) = [one for one in found["fp32"].facts["shims"] if "sgl_kernel" in one]
    assert "a stand-in, since what is installed fails: ImportError: libcuda" in shim
