"""The forward calls of a job. What they should have shown is judged by the parent."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from patchkit.verify.probe import runtime
from patchkit.verify.probe.batches import DraftInput, decode_batch, extend_batch
from patchkit.verify.probe.hazards import forced_capture, run_hazards
from patchkit.verify.probe.named_draft import named_draft
from patchkit.verify.probe.recorder import Recorder
from patchkit.verify.probe.rig import Rig
from patchkit.verify.probe.wrapped import run_wrapped


class Scenario:
    """Runs calls on a rig; ``run`` is by the name of the job's scenario."""

    def __init__(self, rig: Rig, recorder: Recorder) -> None:
        self.rig = rig
        self.recorder = recorder
        self.prompts: list[list[int]] = rig.prompts["prompts"]
        self.lengths = [len(prompt) for prompt in self.prompts]
        ends = [sum(self.lengths[: n + 1]) - 1 for n in range(len(self.lengths))]
        self.last = torch.tensor(ends)
        recorder.facts["refusal"] = rig.try_capture()
        recorder.facts["captures"] = rig.captures

    def run(self, name: str) -> None:
        kind, _, more = name.partition(":")
        if kind == "order":
            self._order(more.split(","))
        elif kind == "wrapped":
            run_wrapped(self.rig, self.recorder)
        elif kind == "hazards":
            run_hazards(self)
        elif kind == "switch":
            forced_capture(self, list(self.rig.prompts["layer_ids"]))
        else:
            self._calls(full=kind == "full")

    def _calls(self, *, full: bool) -> None:
        rig = self.rig
        if full and rig.captures:
            self.set_layers("default")
            self.extend("extend-default")
            self.decode("decode-default")
            self.set_layers("shifted")
            self.extend("extend-shifted")
        if rig.captures:
            self.set_layers("explicit")
        aux = self.extend("extend")
        drafted = None
        if aux is not None and rig.has_draft:
            drafted = self.draft("draft", aux)
        decoded = self.decode("decode")
        if drafted is not None:
            last = [len(p) - 1 for p in rig.prompts["draft_prompts"]]
            rows = torch.tensor([0, len(rig.prompts["draft_prompts"][0])])
            self.draft_step("draft-decode", drafted[rows + torch.tensor(last)])
        if full:
            self.decode("decode-last", keep="LAST")
            if decoded:
                self.prefill_again()
            self.extend("extend-last", keep="LAST")
            starts = [1] + [0] * (len(self.prompts) - 1)
            self.extend("extend-logprobs", logprob_starts=starts)
            self.extend("extend-logprobs-last", keep="LAST", logprob_starts=starts)

    def set_layers(self, which: str) -> None:
        """``default`` (no ids), ``explicit``, or ``shifted``: ids whose first is not
        1, which from 0.5.13 on mean other layers."""
        with self.recorder.step(f"set {which} layers"):
            setter = self.rig.target.set_eagle3_layers_to_capture
            if which == "default":
                setter()
            elif which == "shifted":
                setter(list(self.rig.prompts["shifted_ids"]))
            else:
                setter(list(self.rig.prompts["layer_ids"]))

    # -- the target ---------------------------------------------------------------

    def extend(self, name: str, **options: Any) -> torch.Tensor | None:
        """Prefill of all prompts; the states for the draft: captured, else the
        oracle's (a release without capture)."""
        rig = self.rig
        with self.recorder.call(name) as entry:
            output = self.forward_target(name, **options)
            self._note(entry, output, options.get("keep", "FULL"))
            self.recorder.keep(f"{name}.logits", output.next_token_logits)
            logprobs = getattr(output, "input_token_logprobs", None)
            if isinstance(logprobs, torch.Tensor):
                self.recorder.keep(f"{name}.logprobs", logprobs)
            if rig.captures:
                states: torch.Tensor = output.hidden_states
                return states
            return self._streams(rig.prompts["layer_ids"], name)
        return None

    def forward_target(self, name: str, **options: Any) -> Any:
        """The target's own output of a prefill of all prompts."""
        batch = extend_batch(self.rig.pools, self.prompts, **options)
        return self._forward(name, self.rig.target, batch, self.rig.pools)

    def decode(self, name: str, **options: Any) -> bool:
        """One more token for each prompt; every row is a last one."""
        rig = self.rig
        with self.recorder.call(name) as entry:
            tokens = rig.prompts["decode"]
            batch = decode_batch(rig.pools, self.lengths, tokens, **options)
            output = self._forward(name, rig.target, batch, rig.pools)
            self._note(entry, output, "FULL")
            self.recorder.keep(f"{name}.logits", output.next_token_logits)
            if not rig.captures:
                self._streams(rig.prompts["layer_ids"], name)
            return True
        return False

    def prefill_again(self) -> None:
        """The prompts with the decoded tokens, from nothing: decode must agree."""
        rig = self.rig
        longer = [[*p, t] for p, t in zip(self.prompts, rig.prompts["decode"])]
        with self.recorder.call("prefill") as entry:
            pools = rig.fresh_pools()
            batch = extend_batch(pools, longer)
            output = self._forward("prefill", rig.target, batch, pools)
            self._note(entry, output, "FULL")
            self.recorder.keep("prefill.logits", output.next_token_logits)
            if rig.captures:
                more = torch.arange(1, len(longer) + 1)
                last = output.hidden_states[self.last + more]
                self.recorder.keep("prefill.last", last)

    def _streams(self, ids: Sequence[int], name: str) -> torch.Tensor | None:
        """The streams behind layers ``ids`` (in front of the next), side by side."""
        streams = self.rig.oracle.streams
        wanted = [streams.get(layer + 1) for layer in ids]
        found = [one for one in wanted if one is not None]
        if len(found) != len(wanted):  # bypassed: all-reduce fusion is on
            return None
        joined = torch.cat(found, dim=-1)
        self.recorder.keep(f"{name}.states", joined)
        return joined

    def _note(self, entry: dict[str, Any], output: Any, keep: str) -> None:
        """Which layers the captured states are of, by looking at every layer's."""
        rig, oracle = self.rig, self.rig.oracle
        for layer, stream in sorted(oracle.streams.items()):
            oracle.note("target.stream", stream, layer=layer)
        if not rig.captures:
            return
        asked = list(rig.target.model.layers_to_capture)
        states = output.hidden_states
        entry["asked"] = [int(layer) for layer in asked]
        if not isinstance(states, torch.Tensor):
            entry["captured"] = None
            return
        rows = self.last if keep == "LAST" else torch.arange(oracle.rows)
        streams = {layer: one[rows] for layer, one in oracle.streams.items()}
        entry["rows"] = [states.shape[0], len(rows)]
        entry["width"] = states.shape[-1]
        parts = states.split(rig.hidden, dim=-1)
        entry["captured"] = [_layer_of(part, streams) for part in parts]
        entry["near"] = [_nearest(part, streams) for part in parts]
        self.recorder.keep(f"{entry['call']}.states", states)
        wanted = [layer for layer in sorted(asked) if layer in streams]
        for layer in wanted:
            oracle.note("target.states", streams[layer], layer=layer)
        if wanted:
            joined = torch.cat([streams[layer] for layer in wanted], dim=-1)
            oracle.note("target.joined", joined, parts=len(wanted))

    # -- the draft ----------------------------------------------------------------

    def draft(self, name: str, aux: torch.Tensor) -> torch.Tensor | None:
        """Prefill of the draft on the target's states; its own last stream."""
        rig = self.rig
        with self.recorder.call(name) as entry:
            prompts = rig.prompts["draft_prompts"]
            batch = extend_batch(rig.draft_pools, prompts, DraftInput(aux))
            self._draft_forward(name, entry, batch, aux)
            return rig.oracle.draft_stream
        return None

    def draft_step(self, name: str, states: torch.Tensor) -> None:
        """A decode step on the draft's own states: one part wide, so no ``fc``."""
        rig = self.rig
        lengths = [len(prompt) for prompt in rig.prompts["draft_prompts"]]
        with self.recorder.call(name) as entry:
            handed = DraftInput(states)
            tokens = rig.prompts["decode"]
            batch = decode_batch(rig.draft_pools, lengths, tokens, handed)
            self._draft_forward(name, entry, batch, states)

    def _draft_forward(
        self, name: str, entry: dict[str, Any], batch: Any, given: torch.Tensor
    ) -> None:
        rig, oracle = self.rig, self.rig.oracle
        given = given.clone()
        before = oracle.fc_calls
        output = self._forward(name, rig.draft, batch, rig.draft_pools)
        entry["fc_calls"] = oracle.fc_calls - before
        entering, expected = oracle.draft_entering, given
        if oracle.fc_returned is not None:
            entry["fc_received_equal"] = _equal(oracle.fc_received, given)
            weight = rig.draft.model.fc.weight
            expected = torch.nn.functional.linear(given, weight)
        entry["entering_equal"] = entering is None or _equal(entering, expected)
        stream = oracle.draft_stream
        entry["handed_on_equal"] = stream is None or _equal(
            output.hidden_states, stream
        )
        self.recorder.keep(f"{name}.logits", output.next_token_logits)
        self.recorder.keep(f"{name}.states", output.hidden_states)
        oracle.note("draft.received", given, in_features=rig.draft.model.fc.in_features)
        applied = "applied" if given.shape[-1] != rig.hidden else "skipped"
        oracle.note("draft.entering", expected, fc=applied)
        if stream is not None:
            oracle.note("draft.stream", stream, parts=1)

    # -- the order of a server's start ----------------------------------------------

    def _order(self, setters: Sequence[str]) -> None:
        """The first setter stands when graphs are captured, the last at prefill. Where
        one is called without ids, those of the draft can be read by then."""
        if not self.rig.captures:
            return
        named: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if "default" in setters:
            rig = self.rig
            named = named_draft(rig.draft_fields, rig.prompts["layer_ids"])
        with named:
            for number, which in enumerate(setters):
                self.set_layers(which)
                if number == 0:
                    self.extend("warm-up")  # a decode reads the cache
                    self.decode("graph")
            self.extend("prefill")

    def _forward(self, call: str, model: Any, batch: Any, pools: runtime.Pools) -> Any:
        self.rig.oracle.begin(call)
        self.rig.oracle.rows = int(batch.input_ids.shape[0])
        return runtime.forward(model, batch, pools.backend)


def _equal(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    return one is not None and torch.equal(one, other)


def _layer_of(part: torch.Tensor, streams: dict[int, torch.Tensor]) -> int | None:
    """The layer whose stream ``part`` is, bit for bit."""
    for layer, stream in streams.items():
        if torch.equal(part, stream):
            return layer
    return None


def _nearest(part: torch.Tensor, streams: dict[int, torch.Tensor]) -> list[float]:
    """The layer whose stream is closest, and how far off it is; [] if none fits."""
    found = [
        (float((part.double() - stream.double()).abs().max()), layer)
        for layer, stream in streams.items()
        if part.shape == stream.shape and part.numel()
    ]
    if not found:
        return []
    distance, layer = min(found)
    return [layer, distance]
