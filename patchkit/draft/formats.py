"""What kind of draft a checkpoint is, by its names and fields, and its configuration in
the shape that SGLang reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class Format:
    """``wanted``: SGLang's class for it, "" if there is none. ``aux``: it takes several
    layers' states. ``outputs``: its layer ids name layers whose output is captured, as
    SpecForge counts; else layers in front of which it is, as vLLM does."""

    name: str
    text: str
    wanted: str
    aux: bool = True
    outputs: bool = True


SPECULATORS = Format(
    "speculators",
    "a vLLM speculators checkpoint",
    "LlamaForCausalLMEagle3",
    outputs=False,
)
MLA = Format(
    "kimi-mla", "an EAGLE-3 head with MLA (Kimi-K2.5)", "Eagle3DeepseekV2ForCausalLM"
)
SGLANG = Format(
    "sglang", "an EAGLE-3 head of SGLang or SpecForge", "LlamaForCausalLMEagle3"
)
ORIGINAL = Format(
    "eagle3-original", "an EAGLE-3 head as EAGLE's own", "LlamaForCausalLMEagle3"
)
EAGLE = Format("eagle", "an EAGLE-1 or -2 head", "LlamaForCausalLMEagle", aux=False)
OTHER = Format("unknown", "no draft head that is known here", "", aux=False)


def recognise(config: Mapping[str, Any], names: Iterable[str]) -> Format:
    """``names``: of the checkpoint's tensors."""
    found = set(names)
    first = first_class(config)
    ends = {name.rpartition("layers.0.")[2] for name in found}
    three = any(
        name.endswith(("d2t", "hidden_norm.weight")) or ".midlayer." in f".{name}"
        for name in found
    )
    if "speculators_config" in config or "speculators_model_type" in config:
        return SPECULATORS
    if first == MLA.wanted or any("kv_a_proj_with_mqa" in name for name in ends):
        return MLA
    if three or "draft_vocab_size" in config or first == SGLANG.wanted:
        return SGLANG if first != "LlamaForCausalLM" else ORIGINAL
    if any(name.endswith("fc.weight") for name in found):
        return EAGLE
    return OTHER


def first_class(config: Mapping[str, Any]) -> str:
    """The first of ``architectures``; "" if there is none."""
    found = config.get("architectures")
    first = found[0] if isinstance(found, list) and found else ""
    return first if isinstance(first, str) else ""


def flattened(config: Mapping[str, Any], kind: Format) -> Json:
    """The configuration as SGLang's class would read it: of a speculators checkpoint
    the nested layer's fields move up, and the ids to ``eagle_config``, counted as
    SGLang counts them up to 0.5.12."""
    if kind is not SPECULATORS:
        return dict(config)
    nested = config.get("transformer_layer_config")
    found: Json = dict(nested) if isinstance(nested, dict) else {}
    for name in ("draft_vocab_size", "norm_before_residual", "torch_dtype", "dtype"):
        if name in config:
            found[name] = config[name]
    if config.get("target_hidden_size") is not None:
        found["target_hidden_size"] = config["target_hidden_size"]
    ids = config.get(IDS)
    if isinstance(ids, list) and all(type(one) is int for one in ids):
        found["eagle_config"] = {IDS: [one - 1 for one in ids]}
    found["architectures"] = [kind.wanted]
    found.setdefault("tie_word_embeddings", False)
    return found


@dataclass(frozen=True)
class Ids:
    """Layer ids of a draft's configuration. ``place``: the field that holds them; ""
    if none does. ``read``: SGLang's runner reads that one."""

    ids: Any
    place: str
    read: bool


def layer_ids(config: Mapping[str, Any]) -> Ids:
    """The runner reads ``eagle_config`` alone; without it there are the default ids."""
    eagle = config.get("eagle_config")
    if isinstance(eagle, dict) and IDS in eagle:
        return Ids(eagle[IDS], f"eagle_config.{IDS}", True)
    for place in (IDS, "eagle_layer_ids", "layer_ids"):
        if config.get(place) is not None:
            return Ids(config[place], place, False)
    return Ids(None, "", True)


def language_fields(config: Mapping[str, Any]) -> Json:
    """The language model's part of a target's configuration."""
    for name in ("text_config", "language_config", "llm_config"):
        if isinstance(config.get(name), dict):
            return dict(config[name])
    return dict(config)


def number(config: Mapping[str, Any], name: str) -> int | None:
    """A field that must be a count; ``None`` if it is not."""
    value = config.get(name)
    return value if type(value) is int and value >= 0 else None
