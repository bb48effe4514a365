"""The tiny target and draft, set up as a model runner would, and the oracle on them."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from patchkit.verify.probe import models, runtime
from patchkit.verify.probe.fixture import load_package
from patchkit.verify.probe.fusion import Fusion
from patchkit.verify.probe.gather import mend_all_gather
from patchkit.verify.probe.ledger import Ledger
from patchkit.verify.probe.oracle import Oracle
from patchkit.verify.probe.recorder import told


class Step(Protocol):
    """Names what is being done, for reports and timings."""

    def __call__(self, name: str) -> AbstractContextManager[None]: ...


class Rig:
    """One rank's models (``target``, and unless not wanted ``draft``), pools and
    oracle."""

    target: Any
    draft: Any
    captures: bool
    pools: runtime.Pools
    draft_pools: runtime.Pools

    def __init__(
        self,
        dtype: torch.dtype,
        rank: runtime.Rank,
        ledger: Ledger,
        step: Step,
        *,
        has_draft: bool = True,
    ) -> None:
        self.dtype = dtype
        self.rank = rank
        self.ledger = ledger
        self.step = step
        self.has_draft = has_draft
        self.oracle = Oracle()
        self.fusion = Fusion()
        self.loaded: dict[str, models.Loaded] = {}
        fixtures = load_package()
        self._weights: Any = importlib.import_module(fixtures.__name__ + ".weights")
        self.target_fields = fixtures.load("target")
        self.draft_fields = fixtures.load("draft")
        self.prompts = fixtures.load("prompts")

    @property
    def hidden(self) -> int:
        """Width of one state."""
        width: int = self.target_fields["hidden_size"]
        return width

    def set_up(self, *, fusion: bool = False) -> None:
        with self.step("server args"):
            args = runtime.publish_server_args(self.rank)
        with self.step("distributed"):
            runtime.start_distributed(args, self.rank, self.hidden, self.dtype)
            mend_all_gather(self.rank, self.ledger)
        torch.set_default_dtype(self.dtype)
        if fusion:
            with self.step("emulate all-reduce fusion"):
                self.fusion.switch_on(args)
        with self.step("target"):
            self._build_target()
        if self.has_draft:
            with self.step("draft model"):
                self._build_draft()

    def _build_target(self) -> None:
        from sglang.srt.models.deepseek_v2 import DeepseekV3ForCausalLM

        config = models.target_config(self.target_fields)
        with self.rank.building():
            self.target = self.rank.settle(DeepseekV3ForCausalLM(config))
        self.loaded["target"] = models.load(self.target, self.target_weights())
        runtime.force_absorbed_attention(self.target, self.ledger)
        self.oracle.watch_target(self.target)
        self.pools = runtime.make_pools(config, self.dtype, self.rank)

    def _build_draft(self) -> None:
        from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3

        config = models.draft_config(self.draft_fields)
        with self.rank.building():
            self.draft = self.rank.settle(LlamaForCausalLMEagle3(config))
        self.loaded["draft"] = models.load(self.draft, self.draft_weights())
        self.oracle.watch_draft(self.draft)
        self.draft_pools = runtime.make_pools(
            config, self.dtype, self.rank, heads=self.rank.size
        )

    def target_weights(self) -> dict[str, torch.Tensor]:
        """The target's checkpoint, by its upstream names."""
        found: dict[str, torch.Tensor] = self._weights.target_weights(
            self.target_fields, self.dtype
        )
        return found

    def draft_weights(self) -> dict[str, torch.Tensor]:
        """The draft's checkpoint, by its upstream names."""
        found: dict[str, torch.Tensor] = self._weights.draft_weights(
            self.draft_fields, self.hidden, self.dtype
        )
        return found

    def fresh_pools(self) -> runtime.Pools:
        """Empty pools for the target, so that a prefill owes nothing to a cache."""
        config = models.target_config(self.target_fields)
        return runtime.make_pools(config, self.dtype, self.rank)

    def try_capture(self) -> str:
        """Why the target refuses to capture; "" if it does, or can't at all. Sets
        ``captures``, and the default layers."""
        setter = getattr(self.target, "set_eagle3_layers_to_capture", None)
        refusal = ""
        if setter is not None:
            try:
                setter()
            except Exception as error:
                refusal = told(error)
        self.captures = setter is not None and not refusal
        return refusal
