"""The real DeepSeek model in miniature, with as many layers as the target has: which
layers' streams does a prefill hand to the draft?

Request: ``layers`` (how many there are), ``steps`` and ``ids`` as in ``target``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from patchkit.verify.probe.drafts.setting import Setting, draft_named, failure
from patchkit.verify.probe.rig import Rig
from patchkit.verify.probe.scenario import Scenario

Json = dict[str, Any]


class Miniature(Rig):
    """A target of given fields, with its weights; no draft."""

    def __init__(self, setting: Setting, fields: Mapping[str, Any]) -> None:
        recorder = setting.recorder
        super().__init__(torch.float32, setting.rank, setting.ledger, recorder.step)
        self.target_fields = {**self.target_fields, **fields}

    def set_up(self, *, fusion: bool = False) -> None:
        torch.set_default_dtype(self.dtype)
        with self.step("miniature"):
            self._build_target()


def miniature(setting: Setting, fields: Mapping[str, Any], captures: bool) -> Miniature:
    """One a kind: ``captures`` keeps those apart that were never told to."""
    key = json.dumps([fields, captures], sort_keys=True)
    found: Miniature | None = setting.made.get(key)
    if found is None:
        found = Miniature(setting, fields)
        found.set_up()
        setting.made[key] = found
    return found


def answer(request: Mapping[str, Any], setting: Setting) -> Json:
    """``failed`` with its error, or ``steps``: for each ``captured``, the layers whose
    streams the states are (``null`` in it: of none), or an ``error``."""
    count = request["layers"]
    setting.start(dtype=torch.float32)
    fields = {"num_hidden_layers": count, "first_k_dense_replace": count}
    try:
        rig = miniature(setting, fields, True)
    except Exception as error:
        return {"failed": "build", **failure(error)}
    scenario = Scenario(rig, setting.recorder)
    found = run_steps(scenario, request)
    return {"failed": "", "captures": rig.captures, "steps": found}


def run_steps(scenario: Scenario, request: Mapping[str, Any]) -> list[Json]:
    with draft_named(request["ids"]):
        return [
            captured(scenario, f"step {number}", ids)
            for number, ids in enumerate(request["steps"])
        ]


def captured(scenario: Scenario, name: str, ids: list[int] | None) -> Json:
    """One prefill with ``ids`` chosen, ``None`` for the default layers."""
    setter = getattr(scenario.rig.target, "set_eagle3_layers_to_capture", None)
    if setter is None:
        return {"error": "no set_eagle3_layers_to_capture"}
    try:
        setter(list(ids)) if ids is not None else setter()
    except Exception as error:
        return {"step": "set", **failure(error)}
    scenario.extend(name)
    call = scenario.recorder.facts["calls"][-1]
    found: Json = {"error": call["error"]}
    if call["error"]:
        return found | {"step": "extend", "trace": call.get("trace", [])[-3:]}
    return found | {"captured": call.get("captured"), "width": call.get("width")}
