"""The stand-ins, without torch and without sglang."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from patchkit.verify.probe import standins
from patchkit.verify.probe.ledger import Ledger, StandInCalled

Importer = Callable[[str], ModuleType]


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """Stand-ins switched on, and every trace of them removed afterwards.

    The names become unfindable first: some of the packages may be installed.
    """
    for name in list(sys.modules):
        if name.partition(".")[0] in standins.COMPILED:
            monkeypatch.delitem(sys.modules, name)
    hidden = [
        finder for finder in sys.meta_path if "PathFinder" not in repr(finder)
    ] + [_WithoutCompiled()]
    monkeypatch.setattr(sys, "meta_path", hidden)
    ledger = Ledger()
    standins.install(ledger)
    yield ledger
    for name in list(sys.modules):
        if name.partition(".")[0] in standins.COMPILED:
            del sys.modules[name]


class _WithoutCompiled:
    """The path finder of the import system, blind to the compiled packages."""

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> object:
        if name.partition(".")[0] in standins.COMPILED:
            return None
        return importlib.machinery.PathFinder.find_spec(name, path, target)  # type: ignore[arg-type]


@pytest.fixture
def run_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Importer]:
    """Import a module with the given text, the way SGLang's are imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def run(text: str) -> ModuleType:
        name = f"standin_client_{len(made)}"
        made.append(name)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield run
    for name in made:
        sys.modules.pop(name, None)


def test_unguarded_import_gets_a_stand_in_and_is_recorded(
    ledger: Ledger, run_module: Importer
) -> None:
    module = run_module("import triton\nimport triton.language as tl\n")
    assert isinstance(module.triton, standins.StandInModule)
    assert [entry["name"] for entry in ledger.created] == ["triton", "triton.language"]
    assert ledger.created[0]["imported_by"].endswith("standin_client_0.py:1")


@pytest.mark.parametrize("error", ["ImportError", "(OSError, ImportError)", ""])
def test_guarded_import_is_told_that_the_package_is_missing(
    error: str, ledger: Ledger, run_module: Importer
) -> None:
    text = f"try:\n    import vllm\nexcept {error}:\n    vllm = None\n"
    assert run_module(text).vllm is None
    assert ledger.created == []


def test_an_unrelated_guard_does_not_count(
    ledger: Ledger, run_module: Importer
) -> None:
    run_module("try:\n    import vllm\nexcept KeyError:\n    pass\n")
    assert [entry["name"] for entry in ledger.created] == ["vllm"]


def test_find_spec_says_that_the_package_is_missing(
    ledger: Ledger, run_module: Importer
) -> None:
    text = "import importlib.util\nfound = importlib.util.find_spec('sgl_kernel')\n"
    assert run_module(text).found is None
    assert ledger.created == []


def test_names_outside_the_list_stay_missing(
    ledger: Ledger, run_module: Importer
) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        run_module("import no_such_package\n")


@pytest.fixture
def installed(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ledger:
    """``triton`` and ``sgl_kernel`` lie in a folder that is searched."""
    for name, text in (("triton", ""), ("sgl_kernel", "raise OSError('no driver')")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [importlib.machinery.PathFinder])
    return ledger


def test_what_a_cpu_has_no_use_for(installed: Ledger) -> None:
    found = standins.useless_on_cpu()
    assert found == {
        "triton": "nothing can be launched on a CPU",
        "sgl_kernel": "what is installed fails: OSError: no driver",
    }
    assert "sgl_kernel" not in sys.modules and "triton" not in sys.modules


def test_a_stand_in_for_what_is_installed(
    installed: Ledger, run_module: Importer
) -> None:
    """Who asks or guards is told that it is missing; others get the stand-in."""
    standins.install(installed, {"triton": "it is useless"})
    assert installed.shims == ["triton: a stand-in, since it is useless"]
    assert importlib.util.find_spec("triton") is None
    assert importlib.util.find_spec("sgl_kernel") is not None
    guarded = "try:\n    import triton\nexcept ImportError:\n    triton = None\n"
    assert run_module(guarded).triton is None
    module = run_module("from triton.runtime.cache import default_cache_dir\n")
    assert module.default_cache_dir.__name__ == "default_cache_dir"
    importlib.metadata.version("pytest")  # finders are asked for distributions, too


def test_a_call_raises_and_is_recorded_with_its_phase(
    ledger: Ledger, run_module: Importer
) -> None:
    module = run_module(
        "from sgl_kernel import silu_and_mul\n"
        "def forward():\n"
        "    try:\n"
        "        silu_and_mul(1)\n"
        "    except Exception:\n"
        "        raise\n"
    )
    ledger.phase = "extend"
    with pytest.raises(StandInCalled, match=r"sgl_kernel\.silu_and_mul"):
        module.forward()
    (entry,) = ledger.called_during("extend")
    assert entry["called_by"].endswith("standin_client_0.py:4")
    assert ledger.called_during("decode") == []


def test_a_kernel_can_be_declared_but_not_launched(
    ledger: Ledger, run_module: Importer
) -> None:
    module = run_module(
        "import triton\n"
        "import triton.language as tl\n"
        "@triton.autotune(configs=[triton.Config({})], key=[])\n"
        "@triton.jit\n"
        "def kernel(x, BLOCK: tl.constexpr):\n"
        "    return x\n"
        "assert isinstance(kernel, triton.runtime.jit.JITFunction)\n"
    )
    assert ledger.used["triton.jit"] == 1
    assert ledger.called == []
    with pytest.raises(StandInCalled, match="kernel"):
        module.kernel[(1,)](0, BLOCK=1)
    assert [entry["name"] for entry in ledger.called] == ["triton kernel kernel"]


def test_integer_helpers_are_right(ledger: Ledger, run_module: Importer) -> None:
    triton = run_module("import triton\n").triton
    assert [triton.next_power_of_2(n) for n in (1, 2, 3, 8, 9)] == [1, 2, 4, 8, 16]
    assert [triton.cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_what_import_time_code_does_with_a_name(
    ledger: Ledger, run_module: Importer
) -> None:
    module = run_module(
        "from cutlass import Float32, cute\n"
        "class Mine(Float32):\n"
        "    def __init__(self, value):\n"
        "        self.value = value\n"
        "def annotated(x: 'Float32 | None', y: Float32 | None = None): ...\n"
        "listed = list[Float32]\n"
        "deep = cute.nvgpu.cpasync\n"
        "mine = Mine(3)\n"
    )
    assert module.mine.value == 3
    assert ledger.called == []
