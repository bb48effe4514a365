"""The Kimi-K2.5 wrapper around the tiny target: its EAGLE-3 delegates, text only.

The vision tower is built (one layer, random) and never run: a text prompt does not
reach it.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from patchkit.verify.probe import models, runtime
from patchkit.verify.probe.batches import extend_batch
from patchkit.verify.probe.recorder import Recorder
from patchkit.verify.probe.rig import Rig

MODULE = "sglang.srt.models.kimi_k25"
#: What EAGLE-3 asks of a target; 0.5.9's wrapper has none of them.
DELEGATES = (
    "set_eagle3_layers_to_capture",
    "get_embed_and_head",
    "set_embed_and_head",
)


def run_wrapped(rig: Rig, recorder: Recorder) -> None:
    """An extend through the wrapper, capturing the explicit ids if it can."""
    with recorder.step("wrapper"):
        module = runtime.optional(MODULE)
        recorder.facts["wrapper"] = module is not None
        if module is None:  # before 0.5.9
            return
        model = _build(rig, module)
    missing = [name for name in DELEGATES if not hasattr(model, name)]
    recorder.facts["missing_delegates"] = missing
    recorder.facts["wrapper_unwritten"] = _load(rig, model)
    inner = model.language_model
    runtime.force_absorbed_attention(inner, rig.ledger)
    if "get_embed_and_head" not in missing:
        embed, head = model.get_embed_and_head()
        own = inner.model.embed_tokens.weight, inner.lm_head.weight
        recorder.facts["shares_embedding"] = embed is own[0] and head is own[1]
    setter = model if hasattr(model, DELEGATES[0]) else inner
    if rig.captures and hasattr(setter, DELEGATES[0]):
        setter.set_eagle3_layers_to_capture(list(rig.prompts["layer_ids"]))
    with recorder.call("wrapped"):
        pools = rig.fresh_pools()
        batch = extend_batch(pools, rig.prompts["prompts"])
        batch.mm_inputs = [None] * batch.batch_size
        output = runtime.forward(model, batch, pools.backend)
        recorder.keep("wrapped.logits", output.next_token_logits)
        recorder.keep("wrapped.states", output.hidden_states)


def _build(rig: Rig, module: Any) -> Any:
    configs = importlib.import_module("sglang.srt.configs.kimi_k25")
    vision = configs.KimiK25VisionConfig(
        patch_size=2,
        init_pos_emb_height=4,
        init_pos_emb_width=4,
        num_attention_heads=2,
        num_hidden_layers=1,
        hidden_size=32,
        intermediate_size=32,
        mm_hidden_size=32,
        text_hidden_size=rig.hidden,
        # published configurations say this one twice
        vt_hidden_size=32,
    )
    config = configs.KimiK25Config(vision_config=vision)
    config.text_config = models.target_config(rig.target_fields)
    for name in ("encoder_only", "language_only"):
        setattr(config, name, False)
    with rig.rank.building():
        model = module.KimiK25ForConditionalGeneration(config)
    return rig.rank.settle(model)


def _load(rig: Rig, model: Any) -> list[str]:
    """Through the wrapper's own ``load_weights``; the language parameters that no
    tensor reached."""
    weights = {f"language_model.{k}": v for k, v in rig.target_weights().items()}
    for parameter in model.language_model.parameters():
        if parameter.is_floating_point():
            parameter.data.fill_(float("nan"))
    model.load_weights(iter(weights.items()))
    models.finish(model)
    return [
        name
        for name, parameter in model.language_model.named_parameters()
        if parameter.is_floating_point() and bool(torch.isnan(parameter).any())
    ]
