"""What the draft worker does once both models are loaded: shared embedding and head.

The worker can't be made without a GPU, so its few lines are done here in the same
order, with the draft's own methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from patchkit.verify.probe.drafts.setting import failure


def share(model: Any, algorithm: str, embedding: Sequence[int] | None) -> Any:
    """``embed`` and ``head``: whether the target's took the place of the draft's own;
    ``error`` if that raised. ``embedding``: shape of the target's; ``None``: it is not
    known, and nothing is done."""
    if embedding is None:
        return None
    embed = torch.nn.Parameter(torch.empty(*embedding, device="meta"), False)
    head = torch.nn.Parameter(torch.empty(*embedding, device="meta"), False)
    return hand_over(model, algorithm, embed, head)


def hand_over(model: Any, algorithm: str, embed: Any, head: Any) -> Any:
    found: dict[str, Any] = {"embed": False, "head": False, "error": ""}
    try:
        if algorithm != "EAGLE3" or getattr(model, "load_lm_head_from_target", False):
            model.set_embed_and_head(embed, head)
        else:
            model.set_embed(embed)
        if algorithm == "EAGLE3":
            model.hot_token_id  # noqa: B018 (the worker reads it, whatever the class)
    except Exception as error:
        found |= failure(error)
    inner = getattr(model, "model", None)
    found["embed"] = getattr(getattr(inner, "embed_tokens", None), "weight", 0) is embed
    found["head"] = getattr(getattr(model, "lm_head", None), "weight", 0) is head
    return found
