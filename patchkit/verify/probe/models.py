"""The tiny target and draft as SGLang's own model classes, weights loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def target_config(fields: Mapping[str, Any]) -> Any:
    """``fields`` (a config.json) as the attribute bag that the target reads."""
    from transformers import PretrainedConfig

    plain = {k: v for k, v in fields.items() if not k.startswith("rope_")}
    config = PretrainedConfig(**plain)
    rope = {**fields["rope_scaling"], "rope_theta": fields["rope_theta"]}
    config.rope_theta = fields["rope_theta"]
    # transformers 5 and releases made for it read the one, older ones the other.
    config.rope_parameters = config.rope_scaling = rope
    return config


def draft_config(fields: Mapping[str, Any]) -> Any:
    """``fields`` (a config.json) as the Llama configuration that the draft reads."""
    from transformers import LlamaConfig

    rope = {key: fields[key] for key in ("rope_theta", "rope_scaling")}
    config = LlamaConfig(**{k: v for k, v in fields.items() if k not in rope})
    for name, value in rope.items():  # gone from the class in transformers 5
        if not hasattr(config, name):
            setattr(config, name, value)
    return config


def load(model: Any, weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Load through the model's own ``load_weights``; name what it left unwritten.

    Parameters are filled with NaN first: nothing in the draft reports a parameter
    that no tensor reached, and a random one would go unnoticed.
    """
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data.fill_(float("nan"))
    model.load_weights(iter(weights.items()))
    unwritten = [
        name
        for name, parameter in model.named_parameters()
        if parameter.is_floating_point() and bool(parameter.isnan().any())
    ]
    for module in model.modules():
        method: Any = getattr(module, "quant_method", None)
        if hasattr(method, "process_weights_after_loading"):
            method.process_weights_after_loading(module)
    return unwritten
