"""Odd configurations: the real classes raise all kinds of things, and it is said."""

from __future__ import annotations

import draftkit
import pytest
from faults import Fault

pytestmark = [
    pytest.mark.probe,
    pytest.mark.skipif(
        draftkit.probe_python() is None, reason="needs the verify extra"
    ),
]

#: Of the draft's config.json.
ODD = {
    "text for a width": {"hidden_size": "wide"},
    "no width": {"hidden_size": 0},
    "negative width": {"hidden_size": -64},
    "huge width": {"hidden_size": 1 << 40},
    "no heads": {"num_attention_heads": 0},
    "heads that do not divide": {"num_attention_heads": 3, "head_dim": None},
    "null vocabulary": {"vocab_size": None},
    "class of a number": {"architectures": [3]},
    "class of a class": {"architectures": [["LlamaForCausalLMEagle3"]]},
    "architectures of text": {"architectures": "LlamaForCausalLMEagle3"},
    "model_type of a list": {"model_type": ["llama"]},
    "unknown model_type": {"model_type": "no-such-model"},
    "eagle_config of a list": {"eagle_config": [1, 4, 6]},
    "ids of fractions": {
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1.5, 4.0, 6.0]}
    },
    "ids of nothing": {"eagle_config": {"eagle_aux_hidden_state_layer_ids": None}},
    "ids beyond": {
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 4, 1 << 70]}
    },
    "rope of text": {"rope_scaling": "yarn"},
    "rope of no kind": {"rope_scaling": {"type": "spiral", "factor": 2}},
    "unknown activation": {"hidden_act": "sine"},
    "truth for layers": {"num_hidden_layers": True},
    "a class of the target's": {"architectures": ["DeepseekV3ForCausalLM"]},
}


def test_whatever_the_config_says_it_is_judged(tmp_path):
    faults = {
        name: Fault(name, "sglang", lambda draft, odd=odd: draft.config.update(odd))
        for name, odd in ODD.items()
    }
    seen = draftkit.run_faults("0.5.23", tmp_path, faults, trials=False)
    assert seen.keys() == ODD.keys()
    silent = {name for name, one in seen.items() if not one.findings}
    assert not silent
    said = {
        name: {one.code for one in seen[name].findings}
        for name in ("unknown model_type", "model_type of a list", "ids of nothing")
    }
    assert "model-type" in said["unknown model_type"]
    assert "model-type" in said["model_type of a list"]
    assert "default-layers" in said["ids of nothing"]
    # these builds do not mind
    fine = {*said, "rope of text", "rope of no kind"}
    assert {name for name, one in seen.items() if not one.errors} <= fine
