"""What judging needs to know of the tiny models: JSON from ``patchkit.fixtures``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any


def tiny_shape(setters: Sequence[str]) -> dict[str, Any]:
    """``golden``: dtype -> tensor -> the recorded sums of magnitudes, one an era.
    ``setters`` is passed through; see ``order``."""
    fixtures = importlib.import_module("patchkit.fixtures")
    prompts = fixtures.load("prompts")
    return {
        "layers": fixtures.load("target")["num_hidden_layers"],
        "draft_vocabulary": fixtures.load("draft")["draft_vocab_size"],
        "layer_ids": prompts["layer_ids"],
        "shifted": prompts["shifted_ids"],
        "setters": list(setters),
        "golden": {
            dtype: {
                name: [era["value"] for era in eras] for name, eras in values.items()
            }
            for dtype, values in fixtures.load("golden").items()
        },
    }
