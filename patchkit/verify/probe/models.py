"""The tiny target and draft as SGLang's own model classes, weights loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

#: Read into ``hot_token_id``, or not read at all: no parameter holds them.
NOT_PARAMETERS = ("d2t", "t2d")


@dataclass(frozen=True)
class Loaded:
    """Parameters that no tensor reached, and tensors that reached no parameter."""

    unwritten: list[str]
    dropped: list[str]


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


def load(model: Any, weights: Mapping[str, torch.Tensor]) -> Loaded:
    """Load through the model's own ``load_weights``.

    Parameters are filled with NaN first: nothing in the draft reports a parameter
    that no tensor reached, and a random one would go unnoticed. ``dropped`` is only
    meaningful on one rank: shards hold parts of rows.
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
    dropped = _dropped(model, weights)
    finish(model)
    return Loaded(unwritten, dropped)


def finish(model: Any) -> None:
    """What the loader does once the weights are in."""
    for module in model.modules():
        method: Any = getattr(module, "quant_method", None)
        if hasattr(method, "process_weights_after_loading"):
            method.process_weights_after_loading(module)


def _dropped(model: Any, weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Tensors whose first or last row is in no parameter.

    Releases stack tensors into larger parameters (q, k and v; gate and up; experts),
    which keeps rows whole.
    """
    held = {
        row for parameter in model.parameters() for row in _rows(parameter.detach())
    }
    found = []
    for name, tensor in weights.items():
        if name in NOT_PARAMETERS:
            continue
        rows = tensor.reshape(-1, tensor.shape[-1])
        for row in (rows[0], rows[-1]):
            # a float32 tensor may lie in a parameter of the model's own dtype
            cast = row.to(torch.get_default_dtype())
            if not held & {*_rows(row), *_rows(cast)}:
                found.append(name)
                break
    return found


def _rows(tensor: torch.Tensor) -> Iterator[bytes]:
    if tensor.is_floating_point() and tensor.dim():
        for row in tensor.float().reshape(-1, tensor.shape[-1]).cpu():
            yield row.numpy().tobytes()
