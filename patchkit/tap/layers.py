# patchkit: tap
"""What the models tell about a tensor: layers, widths."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch


def captured_layers(model: Any, *, two_batch: bool) -> list[int]:
    """Indices at which this rank's layer loop captures, in the order it meets them."""
    start = getattr(model, "start_layer", None) or 0
    end = getattr(model, "end_layer", None)
    if end is None:
        layers = getattr(model, "layers", None)
        end = sys.maxsize if layers is None else len(layers)
    dense = getattr(model, "first_k_dense_replace", None)
    # Two-batch overlap runs the layers from `dense` on outside the loop that captures.
    if two_batch and dense is not None:
        if start < dense < end:
            end = dense
        elif dense < start:
            end = start
    # -1 stands for the embedding (embedding-capture): what enters layer 0
    wanted = {max(0, int(layer)) for layer in model.layers_to_capture}
    return sorted(layer for layer in wanted if start <= layer < end)


def unpack(packed: torch.Tensor, hidden: int | None) -> Sequence[torch.Tensor]:
    """Views of the k segments; the whole, as one, if the width is no multiple."""
    width = packed.shape[-1]
    if not hidden or not width or width % hidden:
        return (packed,)
    segments: Sequence[torch.Tensor] = torch.split(packed, hidden, dim=-1)
    return segments


def in_features(fc: object) -> int | None:
    # SGLang's own linear layers call it input_size.
    number = count(fc, "in_features")
    return count(fc, "input_size") if number is None else number


def out_features(fc: object) -> int | None:
    number = count(fc, "out_features")
    return count(fc, "output_size") if number is None else number


def count(owner: object, name: str) -> int | None:
    value = getattr(owner, name, None)
    return value if isinstance(value, int) else None
