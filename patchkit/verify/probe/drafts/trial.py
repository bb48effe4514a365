"""A tiny draft checkpoint with values, run beside a tiny target as a server runs it.

What ``check-draft`` predicts without a value is seen here to happen. Request:
``entries`` (class -> module, of this tree), ``config``, ``files`` (safetensors or
.bin), ``algorithm``, ``target`` (fields of a tiny DeepSeek configuration), ``steps``
and ``ids`` as in ``target``, ``aux`` (whether a server of this tree captures at all),
``wrapper`` (module and class around the target, or null).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch

from patchkit.verify.probe import models, runtime
from patchkit.verify.probe.batches import DraftInput, extend_batch
from patchkit.verify.probe.drafts.build import architecture
from patchkit.verify.probe.drafts.capture import Miniature, miniature, run_steps
from patchkit.verify.probe.drafts.setting import (
    Setting,
    config_of,
    failure,
    import_class,
)
from patchkit.verify.probe.drafts.share import hand_over
from patchkit.verify.probe.scenario import Scenario

Json = dict[str, Any]


def answer(request: Mapping[str, Any], setting: Setting) -> Json:
    """How far it came: ``step`` and ``error`` of what raised (``step`` ``done`` if
    nothing did), and what was seen on the way."""
    trial = Trial(request, setting)
    try:
        trial.run()
    except Exception as error:
        return {**trial.seen, "step": trial.step, **failure(error)}
    return {**trial.seen, "step": "done", "error": ""}


class Trial:
    def __init__(self, request: Mapping[str, Any], setting: Setting) -> None:
        self.request = request
        self.setting = setting
        self.step = "class"
        self.seen: Json = {}

    def run(self) -> None:
        self.setting.start(dtype=torch.float32)
        self.step = "config"
        config = config_of(self.request["config"], self.setting.ledger)
        self.step = "class"
        kind = self._class(architecture(config))
        self.step = "build"
        torch.set_default_dtype(torch.float32)
        draft = kind(config).eval()
        self.step = "load"
        self._load(draft)
        self.step = "target"
        capturing = self.request["algorithm"] == "EAGLE3" and self.request["aux"]
        rig = miniature(self.setting, self.request["target"], capturing)
        whole = self._whole(rig)
        self.step = "share"
        embed, head = whole.get_embed_and_head()
        shared = hand_over(draft, self.request["algorithm"], embed, head)
        self.seen["shared"] = shared
        if shared["error"]:
            raise RuntimeError(shared["error"])
        self._note_parameters(draft)
        self.step = "capture"
        states = self._capture(rig) if capturing else self._plain(rig)
        self.step = "draft"
        self._draft(rig, draft, config, states)
        self.step = "tokens"
        self._tokens(rig, draft)

    def _whole(self, rig: Miniature) -> Any:
        """The target as the server knows it: its wrapper's own methods, if it has
        one."""
        if self.request["wrapper"] is None:
            return rig.target
        kind = import_class(*self.request["wrapper"])
        whole = kind.__new__(kind)
        torch.nn.Module.__init__(whole)
        whole.language_model = rig.target
        return whole

    def _class(self, name: str) -> Any:
        entries = self.request["entries"]
        if name in entries:
            return import_class(entries[name], name)
        # imports every model of the tree, which takes a while
        registry: Any = importlib.import_module("sglang.srt.models.registry")
        kind, _ = registry.ModelRegistry.resolve_model_cls([name])
        if kind.__name__.startswith("Transformers"):
            raise ValueError(f"{name} is taken for a model of transformers")
        return kind

    def _load(self, draft: Any) -> None:
        weights: dict[str, torch.Tensor] = {}
        for file in self.request["files"]:
            weights |= _read(file)
        weights = {
            k: v.float() if v.is_floating_point() else v for k, v in weights.items()
        }
        loaded = models.load(draft, weights)
        self.seen |= {"unwritten": loaded.unwritten, "dropped": loaded.dropped}

    def _note_parameters(self, draft: Any) -> None:
        """Parameters that still hold nothing when the server starts to serve."""
        self.seen["unwritten"] = [
            name
            for name, one in draft.named_parameters()
            if one.is_floating_point() and bool(one.isnan().any())
        ]

    def _capture(self, rig: Miniature) -> torch.Tensor:
        scenario = Scenario(rig, self.setting.recorder)
        found = run_steps(scenario, self.request)
        self.seen["captured"] = [one.get("captured") for one in found]
        if found[-1]["error"]:
            raise RuntimeError(found[-1]["error"])
        states: torch.Tensor = scenario.forward_target("states").hidden_states
        return states

    def _plain(self, rig: Miniature) -> torch.Tensor:
        """The one state that a target hands over which captures nothing."""
        batch = extend_batch(rig.pools, rig.prompts["prompts"])
        output = runtime.forward(rig.target, batch, rig.pools.backend)
        states: torch.Tensor = output.hidden_states
        return states

    def _draft(self, rig: Any, draft: Any, config: Any, states: torch.Tensor) -> None:
        pools = runtime.make_pools(config, torch.float32, self.setting.rank)
        self.seen["given"] = states.shape[-1]
        fc = getattr(getattr(draft, "model", None), "fc", None)
        calls: list[int] = []
        if fc is not None:
            fc.register_forward_hook(lambda *_: calls.append(1))
        prompts = rig.prompts["draft_prompts"]
        batch = extend_batch(pools, prompts, DraftInput(states))
        try:
            output = runtime.forward(draft, batch, pools.backend)
        finally:
            self.seen["fc"] = None if fc is None else bool(calls)
        logits = output.next_token_logits
        self.seen["logits"] = list(logits.shape)
        self.seen["finite"] = bool(torch.isfinite(logits).all())

    def _tokens(self, rig: Any, draft: Any) -> None:
        """Every token that the draft can propose, looked up in the embedding."""
        width = self.seen["logits"][-1]
        hot = getattr(draft, "hot_token_id", None)
        if self.request["algorithm"] != "EAGLE3":
            hot = None
        tokens = torch.arange(width)
        if hot is not None:
            tokens = hot[tokens]
        self.seen["tokens"] = tokens.tolist()
        torch.nn.functional.embedding(tokens, rig.target.get_embed_and_head()[0])


def _read(file: str) -> dict[str, torch.Tensor]:
    if file.endswith(".safetensors"):
        loader: Any = importlib.import_module("safetensors.torch")
        loaded: dict[str, torch.Tensor] = loader.load_file(file)
        return loaded
    found: dict[str, torch.Tensor] = torch.load(file, weights_only=True)
    return found
