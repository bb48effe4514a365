"""Insert taps that log hidden states on their way from the target to the draft.

With ``EAGLE3_DEBUG=1`` the patched server logs, at every forward, what EAGLE-3 hands
from the target model to the draft: the captured aux states with their layer ids, their
concatenation in the logits processor, and what the draft's ``fc`` received and
returned, in particular whether ``fc`` was applied or silently skipped. Unset, nothing
is computed and nothing changes.

Only whole marked lines are added, so a revert is exact even next to edits of yours.
The taps never change a tensor and never raise into the model. CUDA graphs stay on: a
tap that is captured in a graph speaks at every replay (docs/taps.md).

In releases without aux-hidden-state capture in ``deepseek_v2.py`` (before
0.5.4.post2) the site ``deepseek_v2.aux`` is NOT_NEEDED. From 0.5.21 the residual lives
in the forward batch, so ``deepseek_v2.layer`` is NOT_NEEDED there.
"""

import libcst as cst

from patchkit.recipe import (
    Ambiguous,
    AnchorMissing,
    BadOption,
    Import,
    Insertion,
    Method,
    NotNeeded,
    Recipe,
    assigned_call,
    bound_before,
    calls_of,
    insert,
    insert_first,
    is_aux_states,
    joins_last_axis,
    one_layer_call,
    only,
    statements,
    states_handed,
    target_names,
    unpacked_pair,
    width_guard,
)

GATE = ("patchkit_tap.ENABLED",)
IMPORT = "from sglang.srt import patchkit_tap"


class DebugLogging(Recipe):
    version = 1
    summary = "log the EAGLE-3 hidden states, gated by EAGLE3_DEBUG"
    releases = "0.4.6 - 0.5.23, recognised by shape"
    next_step = (
        "restart the server with EAGLE3_DEBUG=1"
        " (EAGLE3_DEBUG_DIR=path also writes JSON lines)"
    )
    # that takes the aux states away: there is nothing to tap behind it
    # the states are told by layer before sort-layer-ids puts them in another order
    after = ("remove-aux-capture", "sort-layer-ids")
    uses_tap = True
    options = {
        "layers": (
            "off",
            "tap the residual stream in front of each layer: off, all, or a list"
            " of layer indices such as 0,2,30,58",
        ),
    }
    sites = {
        "deepseek_v2.aux": "each captured aux state, with its layer index",
        "deepseek_v2.layer": "the residual stream in front of a layer (-O layers=...)",
        "logits_processor.concat": "the aux states concatenated, and the result",
        "llama_eagle3.fc_in": "what the draft receives",
        "llama_eagle3.fc_out": "what fc returns, and whether it was applied or skipped",
    }
    promises = {
        "deepseek_v2.aux": "target.states",
        "deepseek_v2.layer": "target.stream[layers]",
        "logits_processor.concat": "target.joined draft.stream",
        "llama_eagle3.fc_in": "draft.received",
        "llama_eagle3.fc_out": "draft.entering",
    }
    edits = {
        "srt/models/deepseek_v2.py": (
            Import("import", IMPORT),
            Method("begin", "DeepseekV2ForCausalLM", "forward", "begin_target"),
            Method("deepseek_v2.aux", "DeepseekV2ForCausalLM", "forward", "tap_aux"),
            Method("deepseek_v2.layer", "DeepseekV2Model", "forward", "tap_layers"),
        ),
        "srt/layers/logits_processor.py": (
            Import("import", IMPORT),
            Method(
                "logits_processor.concat",
                "LogitsProcessor",
                "_get_hidden_states_to_store forward",
                "tap_concat",
            ),
        ),
        "srt/models/llama_eagle3.py": (
            Import("import", IMPORT),
            Method("begin", "LlamaModel", "forward", "begin_draft"),
            Method("llama_eagle3.fc", "LlamaModel", "forward", "tap_fc"),
        ),
    }

    def check_options(self) -> None:
        self.layers: tuple[int, ...] | None = ()
        value = self.chosen["layers"].strip().lower()
        if value in ("off", "none", ""):
            return
        if value == "all":
            self.layers = None
            return
        try:
            self.layers = tuple(sorted({int(one) for one in value.split(",")}))
        except ValueError:
            raise BadOption(
                f"layers={self.chosen['layers']!r}: give off, all, or indices such as"
                " 0,2,30,58"
            ) from None
        if self.layers[0] < 0:
            raise BadOption(f"layers={value}: a layer index is not negative")

    # -- deepseek_v2.py -----------------------------------------------------------

    def begin_target(self, function: cst.FunctionDef) -> cst.FunctionDef:
        return self._begin(function, "deepseek_v2")

    def tap_aux(self, function: cst.FunctionDef) -> cst.FunctionDef:
        """After ``hidden_states, aux_hidden_states = hidden_states``."""
        calls = calls_of(function, "self.logits_processor")
        if not calls:
            raise AnchorMissing(
                "no call of self.logits_processor", like="self.logits_processor("
            )
        handed = [states_handed(call) for call in calls]
        if not any(aux for _, aux in handed):
            if any(star.star for call in calls for star in call.args):
                raise Ambiguous("self.logits_processor is called with *arguments")
            raise NotNeeded("this release captures no aux hidden states here")
        unpacks = []
        for statement in statements(function):
            pair = unpacked_pair(only(statement))
            if pair is not None and pair in handed:
                unpacks.append((statement, pair))
        if not unpacks:
            raise AnchorMissing(
                "no statement that unpacks (hidden_states, aux_hidden_states) as they"
                " are handed to self.logits_processor",
                like="hidden_states, aux_hidden_states = hidden_states",
            )
        if len(unpacks) > 1:
            raise Ambiguous(f"{len(unpacks)} statements unpack the aux hidden states")
        ((statement, (_, aux)),) = unpacks
        return insert(
            function,
            Insertion(
                statement,
                after=self.gated(
                    GATE,
                    "patchkit_tap.tap_states",
                    '"deepseek_v2.aux"',
                    aux,
                    "self.model",
                ),
            ),
        )

    def tap_layers(self, function: cst.FunctionDef) -> cst.FunctionDef:
        """In front of ``hidden_states, residual = layer(...)`` in the layer loop."""
        if self.layers == ():
            raise NotNeeded("off unless asked for with -O layers=all or a list")
        one = one_layer_call(function)
        hidden, residual = one.stream()
        if not hidden or not residual:
            raise NotNeeded(
                "the layer loop of this release has no residual (it lives in the"
                " forward batch), so the stream is out of reach here"
            )
        gate: tuple[str, ...] = GATE
        if self.layers is not None:
            gate = (f"{GATE[0]} and {one.index} in", *map(str, self.layers))
        return insert(
            function,
            Insertion(
                one.statement,
                before=self.gated(
                    gate,
                    "patchkit_tap.tap_stream",
                    '"deepseek_v2.layer"',
                    hidden,
                    residual,
                    one.index,
                ),
            ),
        )

    # -- logits_processor.py ------------------------------------------------------

    def tap_concat(self, function: cst.FunctionDef) -> cst.FunctionDef:
        """Around each ``... = torch.cat(aux..., dim=-1)`` or its packed successor."""
        parameters = {one.name.value for one in function.params.params}
        if "hidden_states" not in parameters:
            raise AnchorMissing("the method has no parameter hidden_states")
        insertions = []
        for statement in statements(function):
            call = assigned_call(only(statement))
            targets = target_names(only(statement))
            if call is None or len(targets) != 1 or not joins_last_axis(call):
                continue
            parts = call.args[0].value
            if not isinstance(parts, cst.Name) or not is_aux_states(parts.value):
                continue
            if not bound_before(function, statement, "hidden_states"):
                raise Ambiguous(
                    "hidden_states is deleted before the aux states are concatenated"
                )
            insertions.append(
                Insertion(
                    statement,
                    before=self.gated(
                        GATE,
                        "patchkit_tap.tap_parts",
                        '"logits_processor.concat"',
                        parts.value,
                    ),
                    after=self.gated(
                        GATE,
                        "patchkit_tap.tap_concat",
                        '"logits_processor.concat"',
                        targets[0],
                        "hidden_states",
                    ),
                )
            )
        if not insertions:
            raise AnchorMissing(
                "nothing concatenates the aux hidden states along the last axis",
                like="aux_hidden_states = torch.cat(aux_hidden_states, dim=-1)",
            )
        return insert(function, *insertions)

    # -- llama_eagle3.py ----------------------------------------------------------

    def begin_draft(self, function: cst.FunctionDef) -> cst.FunctionDef:
        return self._begin(function, "llama_eagle3")

    def tap_fc(self, function: cst.FunctionDef) -> cst.FunctionDef:
        """Around ``if hidden_states.shape[-1] != embeds.shape[-1]: ... self.fc(...)``.

        Right around the guard, so that a cast or a norm in front of it (forks have
        them) is not taken for ``fc``.
        """
        guard, states = width_guard(function)
        return insert(
            function,
            Insertion(
                guard,
                before=self.gated(
                    GATE,
                    "patchkit_tap.tap_fc_in",
                    '"llama_eagle3.fc_in"',
                    states,
                    "self.fc",
                ),
                after=self.gated(
                    GATE,
                    "patchkit_tap.tap_fc_out",
                    '"llama_eagle3.fc_out"',
                    states,
                    "self.fc",
                ),
            ),
        )

    # -- shared -------------------------------------------------------------------

    def _begin(self, function: cst.FunctionDef, model: str) -> cst.FunctionDef:
        parameters = [one.name.value for one in function.params.params]
        if "forward_batch" not in parameters:
            raise AnchorMissing("forward has no parameter forward_batch")
        return insert_first(
            function,
            self.gated(GATE, "patchkit_tap.begin", f'"{model}"', "forward_batch"),
        )
