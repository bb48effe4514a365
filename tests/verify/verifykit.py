"""Hand-made results for judging without torch, and what the probe's tests share."""

from __future__ import annotations

import os
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

from patchkit.verify.checks import CHECKS
from patchkit.verify.evidence import Evidence
from patchkit.verify.jobs import Result, Values
from patchkit.verify.shape import tiny_shape
from patchkit.verify.verdict import Check

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("PATCHKIT_PROBE_PYTHON", sys.executable)


def values(*numbers: float, dtype: str = "float32") -> Values:
    return Values((len(numbers),), dtype, array("d", numbers).tobytes())


def call(name: str, **more: Any) -> dict[str, Any]:
    """One forward call that went well."""
    entry = {"call": name, "error": "", "printed": [], "reads": {}, "taps": []}
    return {**entry, **more}


def capturing(name: str, layers: list[int | None], rows: int = 8) -> dict[str, Any]:
    """A call that captured the streams of ``layers``."""
    near = [[1, 0.5] if one is None else [one, 0.0] for one in layers]
    width = 64 * len(layers)
    return call(name, captured=layers, near=near, rows=[rows, rows], width=width)


def drafting(name: str, **more: Any) -> dict[str, Any]:
    return call(name, entering_equal=True, handed_on_equal=True, **more)


def tapped(*rows: dict[str, Any]) -> dict[str, Any]:
    """What a call holds whose taps say ``rows``: JSON lines, and the log's."""
    printed = []
    for row in rows:
        words = {key: row[key] for key in row if key not in ("site", "model")}
        words["shape"] = "x".join(map(str, row["shape"]))
        text = " ".join(
            f"{key}={'?' if one is None else one}" for key, one in words.items()
        )
        printed.append(f"[2026-01-01 10:00:00] EAGLE3_DEBUG[{row['site']}] {text}")
    return {"taps": list(rows), "printed": printed}


def good_run(job: str = "patched", *, captures: bool = True) -> Result:
    """What a worker of a release before 0.5.13 reports, everything right."""
    calls = [
        capturing("extend-default", [2, 4, 5]),
        capturing("decode-default", [2, 4, 5], 2),
        capturing("extend-shifted", [3, 5, 7]),
        capturing("extend", [2, 5, 7]),
        drafting("draft", fc_calls=1, fc_received_equal=True),
        capturing("decode", [2, 5, 7], 2),
        drafting("draft-decode", fc_calls=0),
        capturing("decode-last", [2, 5, 7], 2),
        capturing("prefill", [2, 5, 7], 10),
        capturing("extend-last", [2, 5, 7], 2),
        capturing("extend-logprobs", [2, 5, 7]),
        capturing("extend-logprobs-last", [2, 5, 7], 2),
    ]
    if not captures:
        calls = [one for one in calls if not one["call"].endswith(("fault", "ifted"))]
    weights = {"unwritten": [], "dropped": []}
    tensors = {}
    for name in ("extend", "decode", "draft", "draft-decode", "prefill"):
        tensors[f"{name}.logits"] = values(1.0, -2.0)
        tensors[f"{name}.states"] = values(0.5, 3.0)
    tensors["prefill.last"] = tensors["decode.states"]
    facts = {
        "calls": calls,
        "captures": captures,
        "refusal": "",
        "files": {"sglang.srt.models.deepseek_v2": "deepseek_v2.py"},
        "standins_called": [],
        "weights": {"target": weights, "draft": weights},
        "hot_tokens": list(range(0, 128, 2)),
        "fused_calls": 0,
        "fusion_available": True,
        "observations": [],
    }
    return Result(job, 0, "ran", facts=facts, tensors=tensors)


def changed(result: Result, name: str, **more: Any) -> Result:
    """``result`` with other facts about one call."""
    calls = [
        {**one, **more} if one["call"] == name else one for one in result.facts["calls"]
    ]
    return replace(result, facts={**result.facts, "calls": calls})


def evidence_of(*results: Result, same: bool = False, **more: Any) -> Evidence:
    found: dict[str, list[Result]] = {}
    for one in results:
        found.setdefault(one.job, []).append(one)
    shape = tiny_shape(["default", "explicit"])
    return Evidence(found, **{"same": same, "shape": shape, "version": "0.5.9", **more})


def verdict(name: str, *results: Result, **more: Any) -> Check:
    """What check ``name`` says of hand-made results."""
    judge = CHECKS[name].judge
    assert judge is not None
    return judge(evidence_of(*results, **more))


GOOD = good_run()
STOCK = good_run("baseline")
