"""The kernels compiled for a GPU that is not there, and what must hold in the result.

In a process of its own: whether triton compiles or interprets is settled at import.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="no triton; see docs/testing.md")

ROOT = Path(__file__).parents[2]

COMPILE = """
import inspect, re, sys
sys.path.insert(0, sys.argv[1])
import importlib
import triton
from triton.backends.compiler import GPUTarget

kernel = importlib.import_module("patchkit.tap.kernel")
launch = importlib.import_module("patchkit.tap.launch")
copying = importlib.import_module("patchkit.tap.copying")
compiler = triton.compiler


def compiled(function, signature, constants, aligned, warps):
    names = function.arg_names
    if "constants" in inspect.signature(compiler.ASTSource).parameters:
        # triton 3.2, as torch 2.6 has it
        from triton.backends.compiler import AttrsDescriptor

        hints = dict.fromkeys(map(names.index, aligned), 16)
        attrs = AttrsDescriptor.from_hints(hints)
        source = compiler.ASTSource(function, signature, constants, attrs)
    else:
        source = compiler.ASTSource(
            fn=function,
            signature={**signature, **dict.fromkeys(constants, "constexpr")},
            constexprs=constants,
            attrs={(names.index(n),): [["tt.divisibility", 16]] for n in aligned},
        )
    target = GPUTarget("cuda", 90, 32)
    return triton.compile(source, target=target, options={"num_warps": warps})


KINDS = {2: "*bf16", 4: "*fp32"}


def tap(rows, width, itemsize, segments):
    how = launch.plan(rows, width, itemsize, segments)
    pointers = dict(x=KINDS[itemsize], loc="*i64", state="*i64", scratch="*i64")
    pointers["ring"] = "*i32"
    numbers = ("loc_stride", "call", "model", "rows", "row_stride", "programs", "first")
    constants = dict(
        W=width, COLS=how.columns, TR=how.tile_rows, SEGS=segments, PP=how.bucket,
        CAPACITY=32768, TIMER=True,
    )
    signature = {**pointers, **dict.fromkeys(numbers, "i32")}
    made = compiled(
        kernel.tap_kernel, signature, constants, [*pointers, "row_stride"], how.warps
    )
    text = made.asm["ttgir"]
    layouts = dict(re.findall(r"^(#\\w+) = #\\w+\\.blocked<(.*)>$", text, re.M))
    found = re.findall(
        r"tt\\.load .*isVolatile = true.*tensor<(\\d+)x!tt\\.ptr<i64>, (#\\w+)>", text
    )
    assert len(found) >= 4, len(found)
    for size, layout in found:
        covered = 1
        for numbers in re.findall(r"\\[([\\d, ]+)\\]", layouts[layout])[:3]:
            covered *= int(numbers)
        # More threads than words: two would load one word, at different times.
        assert covered <= int(size), (size, layouts[layout])
    # Rows are read 16 bytes at a time, if they are long enough for all threads.
    assert width < 2048 or made.asm["ptx"].count("ld.global.v4.b32") >= 1
    # The number of the record, and nothing else, is taken atomically.
    assert made.asm["ptx"].count("atom.") == 1
    print("ok", rows, width, itemsize, segments, how)


for case in sys.argv[2:]:
    tap(*map(int, case.split(",")))
pointers = dict(counts="*i64", head="*i64", grant="*i64", table="*i64", step="*i64")
numbers = ("site", "call", "size", "limit", "room", "first")
signature = {**pointers, **dict.fromkeys(numbers, "i32")}
compiled(copying.reserve_kernel, signature, {"ENTRIES": 4096}, [], 4)
pointers = dict(x="*i16", arena="*i16", grant="*i64")
numbers = ("rows", "width", "stride", "programs")
signature = {**pointers, **dict.fromkeys(numbers, "i32")}
compiled(copying.copy_kernel, signature, {"SIZE": 2, "BLOCK": 1024}, [], 4)
print("ok copying")
"""

CASES = [
    *("1,7168,2,1", "8,7168,2,3", "64,7168,2,1", "64,7168,2,3", "256,21504,2,1"),
    *("300,7168,2,3", "1000,2048,4,1", "4096,7168,2,1", "4096,64,4,3", "20,4096,4,7"),
]


def test_compiles_for_sm_90(tmp_path):
    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    script = tmp_path / "compile.py"
    script.write_text(COMPILE)
    done = subprocess.run(
        [sys.executable, str(script), str(ROOT), *CASES],
        env={**clean, "TRITON_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count("ok ") == len(CASES) + 1
