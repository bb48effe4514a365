"""What --against must be like, before anything is asked about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.draft.sanity import expect_target
from patchkit.errors import Refused

PLACE = Path("config.json")
GOOD = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "vocab_size": 128,
}


def test_a_target_also_inside_of_a_wrapper() -> None:
    expect_target(PLACE, GOOD, {"LlamaForCausalLMEagle3"})
    wrapper = {"architectures": ["KimiK25ForConditionalGeneration"]}
    expect_target(PLACE, wrapper | {"text_config": GOOD}, set())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"architectures": None}, "it names no architectures"),
        ({"architectures": "Deepseek"}, "its architectures: 'Deepseek'"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "is a draft's: Llama"),
        ({"hidden_size": "64"}, "hidden_size is '64', where a number is needed"),
        ({"vocab_size": None}, "vocab_size is None"),
    ],
)
def test_what_is_none_is_refused_by_name(changed: dict, said: str) -> None:
    with pytest.raises(Refused) as told:
        expect_target(PLACE, GOOD | changed, {"LlamaForCausalLMEagle3"})
    assert said in told.value.message and "--against" in told.value.hint
