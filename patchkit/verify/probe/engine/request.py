"""What an engine is asked, as JSON: the pair, and what to generate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Generate:
    """One call of ``Engine.generate``: prompts as token ids, tokens for each."""

    name: str
    prompts: list[list[int]]
    tokens: int


@dataclass(frozen=True)
class Request:
    """``target`` and ``draft`` are checkpoint folders; ``steps`` those of the draft.
    ``arguments``: further ones of Engine's."""

    target: str
    draft: str
    generate: list[Generate]
    steps: int = 3
    tp: int = 1
    dtype: str = "float32"
    tokens: int = 4096
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def read(file: Path) -> Request:
        value = json.loads(file.read_text("utf-8"))
        value["generate"] = [Generate(**one) for one in value["generate"]]
        return Request(**value)

    def engine(self) -> dict[str, Any]:
        """The arguments of ``Engine``."""
        return {
            "model_path": self.target,
            "speculative_draft_model_path": self.draft,
            "speculative_algorithm": "EAGLE3",
            "speculative_num_steps": self.steps,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": self.steps + 1,
            "tp_size": self.tp,
            "dtype": self.dtype,
            "max_total_tokens": self.tokens,
            "max_running_requests": 4,
            "mem_fraction_static": 0.5,
            "device": "cpu",
            "attention_backend": "torch_native",
            "sampling_backend": "pytorch",
            "grammar_backend": "none",
            "disable_cuda_graph": True,
            "random_seed": 1,
            "log_level": "warning",
            **self.arguments,
        }
