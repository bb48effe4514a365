"""The forward passes over the tiny target and draft, compared with the oracle."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch

from patchkit.verify.probe import runtime
from patchkit.verify.probe.batches import DraftInput, decode_batch, extend_batch
from patchkit.verify.probe.rig import Rig

if TYPE_CHECKING:
    from patchkit.verify.probe.run import Probe


class Passes:
    """Builds both models once, then extends, drafts and decodes."""

    def __init__(self, probe: Probe, dtype: torch.dtype, rendezvous: str) -> None:
        self.probe = probe
        self.report = probe.report
        rank = runtime.Rank(rendezvous=rendezvous)
        self.rig = Rig(dtype, rank, probe.ledger, probe.step)
        self.oracle = self.rig.oracle
        self.report["observations"] = self.oracle.observations
        self.prompts = self.rig.prompts

    def run(self) -> None:
        self.rig.set_up()
        for which, loaded in self.rig.loaded.items():
            self._loaded(which, loaded.unwritten)
        target, pools = self.rig.target, self.rig.pools
        draft, draft_pools = self.rig.draft, self.rig.draft_pools
        captures = self._set_capture(target)
        gc.freeze()
        gc.enable()

        lengths = [len(prompt) for prompt in self.prompts["prompts"]]
        with self.probe.step("extend"):
            batch = extend_batch(pools, self.prompts["prompts"])
            extended = self._forward("extend", target, batch, pools)
        aux = self._check_capture("extend", extended, captures)
        with self.probe.step("draft"):
            handed = DraftInput(aux)
            batch = extend_batch(draft_pools, self.prompts["draft_prompts"], handed)
            drafted = self._forward("draft", draft, batch, draft_pools)
        self._check_draft(drafted)
        with self.probe.step("decode"):
            batch = decode_batch(pools, lengths, self.prompts["decode"])
            decoded = self._forward("decode", target, batch, pools)
        decode_aux = self._check_capture("decode", decoded, captures)

        for name, tensor in (
            ("ext", extended.next_token_logits),
            ("aux", aux),
            ("draft", drafted.next_token_logits),
            ("dec", decoded.next_token_logits),
            ("decaux", decode_aux),
        ):
            total = float(tensor.double().abs().sum())
            self.report["digest"][name] = round(total, 6)
            if not bool(torch.isfinite(tensor).all()):
                self.probe.problem(f"{name}: not all values are finite")

    def _loaded(self, which: str, unwritten: list[str]) -> None:
        self.report.setdefault("weights", {})[which] = {"unwritten": unwritten}
        if unwritten:
            self.probe.problem(f"{which}: no weight reached {', '.join(unwritten)}")

    def _set_capture(self, target: Any) -> bool:
        """Ask for the outputs of layers ``layer_ids``; False if nothing captures.

        The output of layer i is the stream in front of layer i + 1.
        """
        ids = self.prompts["layer_ids"]
        available = hasattr(target, "set_eagle3_layers_to_capture")
        self.report["capture"] = {
            "available": available,
            "layer_ids": ids,
            "layers": [layer + 1 for layer in ids],
            "equal": {},
        }
        if available:
            with self.probe.step("set capture"):
                target.set_eagle3_layers_to_capture(list(ids))
        return available

    def _forward(self, call: str, model: Any, batch: Any, pools: runtime.Pools) -> Any:
        self.oracle.begin(call)
        return runtime.forward(model, batch, pools.backend)

    def _check_capture(self, call: str, output: Any, captures: bool) -> torch.Tensor:
        """The captured states [tokens, 3 * hidden], or the oracle's if there are none.

        They must be bit-equal to what the oracle saw.
        """
        layers = self.report["capture"]["layers"]
        expected = self.oracle.aux_states(layers, note=captures)
        if not captures:
            return expected
        captured: torch.Tensor | None = output.hidden_states
        equal = captured is not None and torch.equal(captured, expected)
        self.report["capture"]["equal"][call] = equal
        if not equal:
            self.probe.problem(
                f"{call}: the captured states are not the streams in front of layers "
                f"{layers}"
            )
        return expected if captured is None else captured

    def _check_draft(self, output: Any) -> None:
        stream = self.oracle.draft_stream
        if stream is not None:
            self.oracle.note("logits_processor.concat", stream, parts=1)
        self.report["draft"] = {"fc_calls": self.oracle.fc_calls}
        if self.oracle.fc_calls != 1:
            self.probe.problem(f"draft: fc ran {self.oracle.fc_calls} times, not once")
