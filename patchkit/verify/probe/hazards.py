"""What goes wrong silently in stock SGLang: odd layer ids, a narrow state, lost names.

Each is provoked once, so that a recipe that makes it right or loud can be held to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from patchkit.verify.probe import models
from patchkit.verify.probe.recorder import told

if TYPE_CHECKING:
    from patchkit.verify.probe.scenario import Scenario

#: The checkpoint's names of the draft's layer, and what no release knows.
RIGHT, WRONG = "midlayer.", "blocks.0."


def run_hazards(scenario: Scenario) -> None:
    rig, recorder = scenario.rig, scenario.recorder
    if rig.captures:
        for name, ids in rig.prompts["odd_ids"].items():
            _extend_with(scenario, name, list(ids))
        scenario.set_layers("explicit")
    if not rig.has_draft:
        return
    aux = scenario.extend("extend")
    if aux is not None:
        # one layer's state where fc expects several side by side
        scenario.draft("draft-narrow", aux[:, : rig.hidden].contiguous())
    with recorder.step("draft with lost names"):
        recorder.facts["lost_names"] = _load_wrong(scenario)


def _extend_with(scenario: Scenario, name: str, ids: list[int]) -> None:
    """An extend that captures ``ids``. What the setter says or raises counts as the
    call's own."""
    setter = scenario.rig.target.set_eagle3_layers_to_capture
    scenario.recorder.printed.take()
    try:
        setter(ids)
    except Exception as error:
        with scenario.recorder.call(f"extend-{name}"):
            raise error
        return
    said = scenario.recorder.printed.take()
    scenario.extend(f"extend-{name}")
    scenario.recorder.facts["calls"][-1]["printed"][:0] = said


def _load_wrong(scenario: Scenario) -> dict[str, Any]:
    """A second draft, from a checkpoint whose layer has names of another format."""
    from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3

    rig, printed = scenario.rig, scenario.recorder.printed
    config = models.draft_config(rig.draft_fields)
    with rig.rank.building():
        draft = LlamaForCausalLMEagle3(config).eval()
    tensors = {k.replace(RIGHT, WRONG): v for k, v in rig.draft_weights().items()}
    printed.take()
    error = ""
    try:
        draft.load_weights(iter(tensors.items()))
    except Exception as problem:
        error = told(problem)
    wrong = sorted(name for name in tensors if WRONG in name)
    return {"error": error, "printed": printed.take(), "wrong": wrong}


def forced_capture(scenario: Scenario, ids: list[int]) -> None:
    """Both setters must refuse; then the layers are set behind their backs, and an
    extend must still capture nothing."""
    rig, recorder = scenario.rig, scenario.recorder
    refusals = {}
    for name in ("set_eagle3_layers_to_capture", "set_dflash_layers_to_capture"):
        setter = getattr(rig.target, name, None)
        if setter is not None:
            refusals[name] = _refusal(setter, ids)
    recorder.facts["refusals"] = refusals
    model = rig.target.model
    kind = type(getattr(model, "layers_to_capture", []))
    model.layers_to_capture = kind(one + 1 for one in ids)
    rig.captures = False
    with recorder.call("forced") as entry:
        output = scenario.forward_target("forced")
        recorder.keep("forced.logits", output.next_token_logits)
        states = output.hidden_states
        wide = isinstance(states, torch.Tensor) and states.shape[-1] != rig.hidden
        entry["captured_width"] = states.shape[-1] if wide else 0


def _refusal(setter: Any, ids: list[int]) -> str:
    try:
        setter(list(ids))
    except Exception as error:
        return told(error)
    return ""
