"""From which release on SGLang has what: measured on the wheels of 0.4.6 to 0.5.23."""

from __future__ import annotations

#: Draft classes -> the first release that has them.
CLASSES = {
    "DeepseekV3ForCausalLMNextN": "0.4.6",
    "LlamaForCausalLMEagle": "0.4.6",
    "LlamaForCausalLMEagle3": "0.4.6",
    "Qwen2ForCausalLMEagle": "0.4.6",
    "MiMoMTP": "0.4.6.post5",
    "Glm4MoeForCausalLMNextN": "0.4.9.post5",
    "Ernie4_5_MoeForCausalLMMTP": "0.5.1",
    "LongcatFlashForCausalLMNextN": "0.5.2",
    "Qwen3NextForCausalLMMTP": "0.5.2",
    "BailingMoeForCausalLMNextN": "0.5.3",
    "MistralLarge3ForCausalLMEagle": "0.5.6.post1",
    "DFlashDraftModel": "0.5.11",
    "MistralForCausalLMEagle": "0.5.11",
    "Eagle3DeepseekV2ForCausalLM": "0.5.12",
    "DeepseekV4ForCausalLMNextN": "0.5.12",
}

#: Fields that change what a draft computes -> the first release whose
#: LlamaForCausalLMEagle3, or whose runner, reads them; "" if none does.
FIELDS = {
    "norm_output": "0.5.12",
    "fc_norm": "0.5.12",
    "use_aux_norm": "0.5.12",
    "num_aux_hidden_states": "0.5.12",
    "norm_before_fc": "0.5.17",
    "norm_before_residual": "",
    "eagle_config": "0.4.9",
}

#: The draft's layer is called ``layers.0`` too from 0.5.12 on.
ONLY_MIDLAYER = "0.4.6 - 0.5.11"
THREE_STATES = "0.4.6 - 0.5.11"
GRAPHS_FIRST = "0.4.6 - 0.5.10.post1"
NO_CAPTURE = "0.4.6 - 0.5.4.post1"
NO_DELEGATES = "0.5.9"
ALWAYS_PLUS_ONE = "0.5.4.post2 - 0.5.12.post1"
FIRST_ID_RULE = "0.5.13 - 0.5.23"
