"""The tiny models' configurations."""

from __future__ import annotations

from typing import Any

import pytest

from patchkit.verify.probe.fixture import load_package


@pytest.fixture(scope="module")
def fixtures() -> Any:
    return load_package()


def test_default_capture_layers_are_distinct(fixtures: Any) -> None:
    layers = fixtures.load("target")["num_hidden_layers"]
    assert len({2, layers // 2, layers - 3}) == 3


def test_mla_ranks_are_unequal(fixtures: Any) -> None:
    target = fixtures.load("target")
    names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
    assert len({target[name] for name in names}) == len(names)


def test_draft_differs_from_the_target_where_mistakes_hide(fixtures: Any) -> None:
    draft = fixtures.load("draft")
    assert draft["draft_vocab_size"] < draft["vocab_size"]
    assert draft["num_key_value_heads"] < draft["num_attention_heads"]


def test_draft_prompts_are_the_prompts_moved_by_one(fixtures: Any) -> None:
    prompts = fixtures.load("prompts")
    for prompt, moved in zip(prompts["prompts"], prompts["draft_prompts"]):
        assert moved[:-1] == prompt[1:]


def test_each_load_is_a_copy(fixtures: Any) -> None:
    fixtures.load("target")["hidden_size"] = 0
    assert fixtures.load("target")["hidden_size"] == 64
