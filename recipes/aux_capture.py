"""Insert the aux-hidden-state capture that EAGLE-3 needs where a tree has none.

Up to 0.5.4.post1 ``deepseek_v2.py`` captures nothing, so EAGLE-3 can't serve DeepSeek
there. This adds what 0.5.4.post2 brought: ``set_eagle3_layers_to_capture``, the
capture in the layer loop, the tuple return, its unpacking, and the hand-over to the
logits processor, which takes aux states in every one of these releases already. So
does the rest of what a draft asks of its target: ``get_embed_and_head`` is there.

An id of ``set_eagle3_layers_to_capture(layer_ids)`` names the layer whose *output* is
captured: the state in front of layer ``id + 1``. Without ids these are the states in
front of layers 2, n // 2 and n - 3. An id of -1 is the embedding output. Where the
tree has pipeline parallelism (0.5.1 on), only the last rank captures, and only layers
of its own.

What is captured is the whole of what enters a layer:

- where layers leave their all-reduce to the next one (0.4.9.post4 on, all-reduce
  fusion), a copy is reduced first: the stock captures up to 0.5.13.post1 hand on a
  part of the sum. It costs one all-reduce more for each captured layer, only while
  fusion is on, and leaves what the layers compute alone. A tree without fusion gets
  no such code;
- where rows are spread over the attention ranks between layers (expert parallelism
  with DeepEP, dense layers under ``--moe-dense-tp-size 1``), they are gathered;
- two-batch overlap runs most layers outside of the loop, where nothing is captured.
  While layers are captured, all of them run in the loop: such a server gives up the
  overlap in its target model.

There are no options. Releases that capture already are NOT_NEEDED, and so is every
file but ``deepseek_v2.py``: ``logits_processor.py`` is only looked at. Two defects of
stock captures are not mended here, since they are not in the capture: CUDA graphs are
captured before SGLang passes the draft's own ids, so that they keep the default layers
(``keep-layer-ids``), and a request for input log-probabilities that keeps the last
hidden state only finds that path of the logits processor not filled, and raises.

It can't be applied together with ``remove-aux-capture``, which takes this out again.
"""

import libcst as cst

from patchkit.recipe import (
    Ambiguous,
    AnchorMissing,
    Insertion,
    Members,
    Method,
    NotNeeded,
    Recipe,
    assigned_call,
    bound_before,
    calls_of,
    code,
    deferral_mark,
    insert,
    insert_members,
    one_layer_call,
    only,
    statements,
    states_handed,
    target_names,
)

STATES = "aux_hidden_states"
SETTER = "set_eagle3_layers_to_capture"
HAS = "this release captures aux hidden states already"


class AuxCapture(Recipe):
    version = 1
    summary = "insert the aux-hidden-state capture where deepseek_v2.py has none"
    releases = "0.4.6 - 0.5.4.post1, recognised by shape"
    next_step = "patchkit verify, then start the server with its EAGLE-3 draft"
    excludes = ("remove-aux-capture",)
    fixes = ("fusion", "embedding-ids")
    # outputs that only a capture has; and a defect of the logits processor's own that
    # only a capture meets (docs/verify.md: logprobs-last)
    changes = (
        "*-default.*",
        "extend-shifted.*",
        "*-last.states",
        "prefill.last",
        "prefill.states",
        "extend-logprobs-last.*",
    )
    sites = {
        "layer.reduce": "whether a layer leaves its all-reduce to the next one",
        "layer.rows": "whether rows are spread over ranks between layers",
        "capture": "what enters each chosen layer, captured in the layer loop",
        "return": "the model returns the states beside its output",
        "unpack": "the states go to the logits processor",
        "setter": "set_eagle3_layers_to_capture",
        "logits_processor.takes": "the logits processor takes aux states",
    }
    edits = {
        "srt/models/deepseek_v2.py": (
            Method("layer.reduce", "DeepseekV2DecoderLayer", "forward", "look_at_sum"),
            Method("layer.rows", "DeepseekV2DecoderLayer", "__init__", "look_at_rows"),
            Members("state", "DeepseekV2Model", "add_state"),
            Method("capture", "DeepseekV2Model", "forward", "capture"),
            Members("setter", "DeepseekV2ForCausalLM", "add_setter"),
            Method("unpack", "DeepseekV2ForCausalLM", "forward", "hand_over"),
        ),
        "srt/layers/logits_processor.py": (
            Method("logits_processor.takes", "LogitsProcessor", "forward", "look_at"),
        ),
    }

    #: what this file does: the mark of a deferred all-reduce; how a layer says that
    #: rows are spread over ranks; whether it captures already
    deferral = ""
    spread = ""
    captures = False

    # -- the decoder layer: only looked at ------------------------------------------

    def look_at_sum(self, function: cst.FunctionDef) -> cst.FunctionDef:
        self.deferral = deferral_mark(function)
        if self.deferral:
            raise NotNeeded(
                "a layer may leave its all-reduce to the next one: a copy is reduced"
            )
        raise NotNeeded("each layer reduces its own output")

    def look_at_rows(self, function: cst.FunctionDef) -> cst.FunctionDef:
        assigned = {
            code(target.target)
            for statement in statements(function)
            if isinstance(node := only(statement), cst.Assign)
            for target in node.targets
        }
        if "self.layer_scatter_modes" in assigned:
            self.spread = "modes"
        elif "self.input_is_scattered" in assigned:
            self.spread = "flag"
        else:
            raise NotNeeded("each rank has all rows of its requests at each layer")
        raise NotNeeded("rows may be spread over the attention ranks: gathered")

    # -- the model --------------------------------------------------------------------

    def add_state(self, owner: cst.ClassDef) -> cst.ClassDef:
        self.captures = "layers_to_capture" in code(owner)
        if self.captures:
            raise NotNeeded(HAS)
        return insert_members(
            owner,
            first=lambda depth: self.lines(
                [
                    "# EAGLE-3 is given the stream in front of these layers",
                    "layers_to_capture = ()",
                ]
            ),
            last=lambda depth: self.lines(self._helper()),
        )

    def _helper(self) -> list[str]:
        """The method that gives what enters a layer."""
        lines = [
            "",
            "def _aux_hidden_state(",
            "    self,",
            "    layer,",
            "    hidden_states,",
            "    residual,",
            "    forward_batch,",
            "):",
            "    # what enters the layer: the whole sum, and all rows",
            "    if residual is None:",
            "        return hidden_states.clone()",
        ]
        if self.deferral:
            lines += [
                f'    mark = "{self.deferral}"',
                "    if getattr(hidden_states, mark, False):",
                "        from sglang.srt import distributed as tp",
                "        # a copy: the layer reduces hidden_states itself",
                "        whole = hidden_states.clone()",
                "        whole = tp.tensor_model_parallel_all_reduce(whole)",
                "        hidden_states = whole",
            ]
        lines += ["    state = hidden_states + residual"]
        if not self.spread:
            return [*lines, "    return state"]
        if self.spread == "modes":
            lines += [
                "    modes = layer.layer_scatter_modes",
                "    if modes.layer_input_mode == modes.attn_mode:",
            ]
        else:
            lines += ["    if not layer.input_is_scattered:"]
        return [
            *lines,
            "        return state",
            "    from sglang.srt.layers import dp_attention as ranks",
            "    size = ranks.get_attention_tp_size()",
            "    if size == 1:",
            "        return state",
            "    rows = forward_batch.input_ids.shape[0]",
            "    gathered = state.new_empty((rows, state.shape[1]))",
            "    torch.distributed.all_gather(",
            "        list(gathered.tensor_split(size)),",
            "        state,",
            "        group=ranks.get_attention_tp_group().device_group,",
            "    )",
            "    return gathered",
        ]

    def capture(self, function: cst.FunctionDef) -> cst.FunctionDef:
        """In front of ``hidden_states, residual = layer(...)``; and the return."""
        if self.captures:
            raise NotNeeded(HAS)
        one = one_layer_call(function)
        hidden, residual = one.stream()
        if not hidden or not residual:
            raise Ambiguous(
                "a layer neither takes nor returns the hidden states and the residual"
            )
        if one.loop not in function.body.body:
            raise Ambiguous("the loop over self.layers is inside another block")
        if not bound_before(function, one.loop, hidden):
            raise Ambiguous(f"{hidden} may have no value in front of the layer loop")
        parameters = [param.name.value for param in function.params.params]
        if "forward_batch" not in parameters:
            raise AnchorMissing("forward has no parameter forward_batch")
        final = function.body.body[-1]
        if code(final) != f"return {hidden}":
            raise AnchorMissing(
                f"forward does not end in return {hidden}", like=f"return {hidden}"
            )
        bounds = _whole_loop(function, one.loop)
        begin = [f"{STATES} = []"]
        if bounds:
            begin += [
                "if self.layers_to_capture:",
                "    # no two-batch overlap: this loop must see them",
                *(f"    {bound}" for bound in bounds),
            ]
        return insert(
            function,
            Insertion(one.loop, before=lambda depth: self.lines(begin)),
            Insertion(
                one.statement,
                before=lambda depth: self.lines(
                    [
                        f"if {one.index} in self.layers_to_capture:",
                        f"    {STATES}.append(",
                        "        self._aux_hidden_state(",
                        f"            {one.layer},",
                        f"            {hidden},",
                        f"            {residual},",
                        "            forward_batch,",
                        "        )",
                        "    )",
                    ]
                ),
            ),
            Insertion(
                final,
                before=lambda depth: self.lines(
                    [f"if {STATES}:", f"    return {hidden}, {STATES}"]
                ),
            ),
        )

    # -- the model with its head ------------------------------------------------------

    def add_setter(self, owner: cst.ClassDef) -> cst.ClassDef:
        if (SETTER in code(owner)) != self.captures:
            raise Ambiguous(
                f"one of DeepseekV2Model.layers_to_capture and {SETTER} is there, the"
                " other is not"
            )
        if self.captures:
            raise NotNeeded(HAS)
        return insert_members(
            owner,
            first=lambda depth: self.lines(["capture_aux_hidden_states = False"]),
            last=lambda depth: self.lines(self._setter(owner)),
        )

    def _setter(self, owner: cst.ClassDef) -> list[str]:
        lines = ["", f"def {SETTER}(self, layer_ids=None):"]
        if "self.pp_group = " in code(owner):
            lines += [
                "    if not self.pp_group.is_last_rank:",
                "        return",
            ]
        return [
            *lines,
            "    self.capture_aux_hidden_states = True",
            "    if layer_ids is None:",
            "        n = self.config.num_hidden_layers",
            "        self.model.layers_to_capture = [2, n // 2, n - 3]",
            "    else:",
            "        # a layer's output is what the next one is given",
            "        ids = [val + 1 for val in layer_ids]",
            "        self.model.layers_to_capture = ids",
        ]

    def hand_over(self, function: cst.FunctionDef) -> cst.FunctionDef:
        """In front of ``return self.logits_processor(...)``."""
        calls = calls_of(function, "self.logits_processor")
        if not calls:
            raise AnchorMissing(
                "no call of self.logits_processor", like="self.logits_processor("
            )
        if self.captures:
            raise NotNeeded(HAS)
        returns = [
            statement
            for statement in statements(function)
            if isinstance(node := only(statement), cst.Return) and node.value in calls
        ]
        if len(calls) > 1 or len(returns) != 1:
            raise Ambiguous(
                "the one call of self.logits_processor is not returned right away"
            )
        (call,) = calls
        hidden = states_handed(call)[0]
        made = [
            target_names(only(statement))
            for statement in statements(function)
            if (made := assigned_call(only(statement))) is not None
            and code(made.func) == "self.model"
        ]
        if made != [[hidden]] or len(call.args) != 4:
            raise Ambiguous(
                "the logits processor is not given what self.model returns, in its"
                " second of four arguments"
            )
        arguments = [code(one).rstrip(", ") for one in call.args]
        return insert(
            function,
            Insertion(
                returns[0],
                before=lambda depth: self.lines(
                    [
                        "if self.capture_aux_hidden_states:",
                        f"    {hidden}, aux_states = {hidden}",
                        "    return self.logits_processor(",
                        *(f"        {one}," for one in (*arguments, "aux_states")),
                        "    )",
                    ]
                ),
            ),
        )

    # -- the logits processor: only looked at ---------------------------------------

    def look_at(self, function: cst.FunctionDef) -> cst.FunctionDef:
        names = [one.name.value for one in function.params.params]
        if names[5:6] == [STATES]:
            raise NotNeeded("it takes aux hidden states, as its fifth argument")
        raise AnchorMissing(
            f"LogitsProcessor.forward has no fifth parameter {STATES}",
            like=f"{STATES}: Optional[torch.Tensor] = None,",
        )


def _whole_loop(function: cst.FunctionDef, loop: cst.For) -> list[str]:
    """Assignments that make ``loop`` run all layers, where two-batch overlap may take
    the last ones; none where it can't.

    Recognised: ``for i in range(..., end)`` and, below, ``if end != total:``.
    """
    if "tbo" not in code(function):
        return []
    bounds = loop.iter
    assert isinstance(function.body, cst.IndentedBlock)
    if isinstance(bounds, cst.Call) and code(bounds.func) == "range":
        names = [code(one.value) for one in bounds.args]
        end = names[-1]
        for statement in function.body.body:
            if isinstance(statement, cst.If):
                left, _, total = code(statement.test).partition(" != ")
                if left == end and total and "tbo" in code(statement.body):
                    start = _first_value(function, names[0]) if names[1:] else ""
                    begin = [f"{names[0]} = {start}"] if start else []
                    if bool(start) == bool(names[1:]):
                        return [*begin, f"{end} = {total}"]
    raise Ambiguous("two-batch overlap takes layers from the loop in an unknown way")


def _first_value(function: cst.FunctionDef, name: str) -> str:
    for statement in statements(function):
        node = only(statement)
        if isinstance(node, cst.Assign) and target_names(node) == [name]:
            return code(node.value)
    return ""
