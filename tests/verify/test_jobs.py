"""What passes between parent and probe, and that it needs neither torch nor sglang."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
import verifykit as kit

from patchkit.verify.jobs import Job, Result, Values, module_name


def test_distance_and_magnitude() -> None:
    one, other = kit.values(1.0, -3.0), kit.values(1.5, -3.0)
    assert one.distance(other) == 0.5
    assert one.magnitude() == 3.0
    assert one.total() == 4.0
    assert one.distance(kit.values(1.0)) == math.inf


def test_a_nan_is_equal_to_a_nan_only() -> None:
    one = kit.values(math.nan, 1.0)
    assert one.distance(one) == 0.0
    assert one.distance(kit.values(0.0, 1.0)) == math.inf
    assert not one.finite()


def test_infinities_of_the_same_sign_are_equal() -> None:
    assert kit.values(math.inf).distance(kit.values(math.inf)) == 0.0
    assert kit.values(math.inf).distance(kit.values(-math.inf)) == math.inf


def test_jobs_and_results_survive_json() -> None:
    job = Job("a", {"sglang.x": None}, "short", "bfloat16", 2, True, {"E": "1"})
    assert Job.from_json(json.loads(json.dumps(job.to_json()))) == job
    result = Result(
        "a", 1, "failed", "step", "E: x", ("t",), ("o",), 1.5, 7, {"calls": []},
        {"x": kit.values(1.0, math.nan, dtype="bfloat16")},
    )  # fmt: skip
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_empty_values() -> None:
    empty = Values((0, 3), "float32", b"")
    assert (empty.magnitude(), empty.total(), empty.finite()) == (0.0, 0.0, True)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("srt/layers/x.py", "sglang.srt.layers.x"),
        ("srt/patchkit_tap/__init__.py", "sglang.srt.patchkit_tap"),
        ("__init__.py", "sglang"),
    ],
)
def test_module_names(path: str, name: str) -> None:
    assert module_name(path) == name


def test_the_parent_side_imports_neither_torch_nor_sglang() -> None:
    names = [
        path.relative_to(kit.ROOT).with_suffix("").as_posix().replace("/", ".")
        for path in (kit.ROOT / "patchkit/verify").rglob("*.py")
        if "probe" not in path.parts
    ]
    code = (
        "import sys\nimport importlib\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(*{'torch', 'sglang', 'libcst'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *names], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
