"""gate- and remove-debug-logging on real releases, and what they report as left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import SAMPLE, stock
from test_releases import all_releases

from patchkit import engine
from patchkit.model import Status
from patchkit.recipes.debug_logging import DebugLogging
from patchkit.recipes.gate_debug_logging import GateDebugLogging
from patchkit.recipes.remove_debug_logging import RemoveDebugLogging

LLAMA = "srt/models/llama_eagle3.py"
BOTH = (GateDebugLogging, RemoveDebugLogging)


@all_releases(SAMPLE)
def test_nothing_that_ships_is_touched(release):
    for path in GateDebugLogging.files:
        source = (stock(release) / "sglang" / path).read_bytes()
        for recipe in BOTH:
            found = engine.apply(recipe, source, path)
            assert found.status is Status.NOT_NEEDED
            assert found.source == source


@all_releases(("0.4.6", "0.5.9", "0.5.23"))
def test_lines_of_patchkit_are_not_touched(release):
    for path in GateDebugLogging.files:
        source = (stock(release) / "sglang" / path).read_bytes()
        tapped = engine.apply(DebugLogging, source, path, {"layers": "all"})
        for recipe in BOTH:
            found = engine.apply(recipe, tapped.source, path)
            assert found.status is Status.NOT_NEEDED
            assert found.source == tapped.source


def said(recipe, *body: str, **options: str) -> list[str]:
    """What is reported for a function with this body; the lines are those of it
    as it is then."""
    source = "import os\nimport torch\n\n\ndef forward(self, x, q):\n    real(x)\n"
    source += "".join(f"    {line}\n" for line in body)
    found = engine.apply(recipe, source.encode(), LLAMA, options)
    start = found.source.decode().split("\n").index("    real(x)") + 1
    return [
        f"{s.line - start}: {s.detail}" for s in found.sites if s.name == "left alone"
    ]


@pytest.mark.parametrize("recipe", BOTH)
def test_what_was_left_alone_is_said_with_its_line_and_reason(recipe):
    line = 3 if recipe is GateDebugLogging else 1
    assert said(recipe, "print(x)", "print(q.pop(), x)") == [
        f"{line}: `print(q.pop(), x)`: `q.pop` may do more than look"
    ]
    assert said(recipe, "taken = q.pop()", "print(taken)") == [
        "1: `taken = q.pop()`: only debug code reads `taken`, but `q.pop` may do more"
        " than look"
    ]
    assert said(recipe, "rows = x.shape[0]", "print(rows)") == [
        "1: `rows = x.shape[0]`: only debug code reads `rows`, but it may be the"
        " release's own"
    ]
    assert said(recipe, "print(x, file=q)") == [
        "1: `print(x, file=q)`: it prints into `q`, which may be no log"
    ]
    assert said(recipe, "print(x := 1)") == [
        "1: `print((x := 1))`: `(x := 1)` does more than look"
    ]


def test_a_dump_is_only_gated_or_removed_on_request():
    dump = "torch.save(x, '/tmp/x.pt')"
    assert said(GateDebugLogging, dump) == []
    assert said(RemoveDebugLogging, dump) == [
        f"1: `{dump}`: `torch.save` writes a dump (-O dumps=yes takes it out too)"
    ]
    assert said(RemoveDebugLogging, dump, dumps="yes") == []


def test_an_if_on_the_variable_that_can_not_go_is_said():
    test = "if q.pop() and os.environ.get('EAGLE3_DEBUG'):"
    assert said(RemoveDebugLogging, test, "    real(x)") == [
        "1: `if q.pop() and os.environ.get('EAGLE3_DEBUG')`: `q.pop` may do more than"
        " look"
    ]


@pytest.mark.parametrize(
    "setting", [None, "", "0", "false", "No", " OFF ", "1", "true", "on", "yes", "2"]
)
def test_the_constant_reads_the_variable_as_the_taps_do(setting, tmp_path):
    gated = engine.apply(GateDebugLogging, b"print('seen')\n", LLAMA)
    script = tmp_path / "gated.py"
    script.write_bytes(gated.source)
    tap = Path(__file__).parent.parent / "patchkit/tap/settings.py"
    script.write_bytes(
        script.read_bytes()
        + f"import runpy\nprint(runpy.run_path({str(tap)!r})['SETTINGS'].enabled)\n"
        .encode()
    )  # fmt: skip
    env = {k: v for k, v in os.environ.items() if k != "EAGLE3_DEBUG"}
    if setting is not None:
        env["EAGLE3_DEBUG"] = setting
    done = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True
    )
    assert done.stdout in ("seen\nTrue\n", "False\n"), done.stderr
