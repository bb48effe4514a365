"""Say that layer ids are out of order, or deliver the states in the order asked for.

The layer loop meets the layers in their own order, whatever order the ids of
``set_eagle3_layers_to_capture`` are in: a draft whose configuration names layers 29, 1
and 57 is given 1, 29, 57, and drafts noise without a word. An id that is named twice is
captured once, so that the draft is given fewer states than its fc takes.

By default (-O order=warn) the setter says so in the log, with the layers asked for and
the layers captured, each time such ids come. What is captured stays as it was; from
0.5.17 on, where the states are packed as they come, SGLang itself fails at the first
forward if an id comes twice.

With -O order=asked the states are delivered in the order asked for, also one of them
twice: in front of the call of the logits processor, the list (up to 0.5.16) or the
segments of the packed tensor (0.5.17 on) are put in this order. A list is put in order
without a copy; the packed tensor is copied once, in CUDA graphs, too. Ids in order cost
one test of an attribute. If fewer layers were captured than asked for (two-batch
overlap, layers of another pipeline rank), it raises: no order could be right.

Layers are those of ``layers_to_capture``, behind all that the setter makes of the ids:
what an id means differs by release, and is not changed here. DFlash's setter, where
there is one, is treated alike. In trees without capture it is NOT_NEEDED, unless
``aux-capture`` is applied: it goes first, and so does ``embedding-capture``.
"""

import libcst as cst

from patchkit.recipe import (
    Ambiguous,
    AnchorMissing,
    BadOption,
    Insertion,
    Members,
    NotNeeded,
    Recipe,
    Statement,
    calls_of,
    insert,
    insert_behind_layers,
    insert_members,
    layers_target,
    method_of,
    setters_of,
    statements,
    states_handed,
    with_method,
)


class SortLayerIds(Recipe):
    version = 1
    summary = "layer ids out of order: say so, or deliver the states as asked"
    releases = "0.5.4.post2 - 0.5.23, and trees with aux-capture; recognised by shape"
    next_step = "restart the server: its start says if the ids are out of order"
    after = ("aux-capture", "embedding-capture", "keep-layer-ids")
    excludes = ("remove-aux-capture",)
    options = {
        "order": (
            "warn",
            "warn: say in the log that states come in layer order; asked: deliver"
            " them in the order asked for",
        ),
    }
    sites = {"order": "the order of the layers asked for, and of what is delivered"}
    fixes = ("unsorted-ids",)
    edits = {
        "srt/models/deepseek_v2.py": (
            Members("order", "DeepseekV2ForCausalLM", "look_at_order"),
        ),
    }

    def check_options(self) -> None:
        if self.chosen["order"] not in ("warn", "asked"):
            raise BadOption(f"order={self.chosen['order']}: give warn or asked")

    def look_at_order(self, owner: cst.ClassDef) -> cst.ClassDef:
        setters = setters_of(owner)
        if not setters:
            raise NotNeeded("this release captures no aux hidden states")
        asked = self.chosen["order"] == "asked"
        for setter in setters:
            lines = (_ASKED if asked else _WARN).format(layers=layers_target(setter))

            def look(depth: int, lines: str = lines) -> list[Statement]:
                return self.lines(lines.splitlines())

            owner = with_method(owner, setter, insert_behind_layers(setter, look))
        if not asked:
            return owner
        forward = method_of(owner, "forward")
        if forward is None:
            raise AnchorMissing("DeepseekV2ForCausalLM has no forward")
        owner = with_method(owner, forward, self._deliver(forward))
        return insert_members(
            owner, last=lambda depth: self.lines(_IN_ORDER.splitlines())
        )

    def _deliver(self, forward: cst.FunctionDef) -> cst.FunctionDef:
        """In front of each statement that hands aux states to the logits processor."""
        insertions = []
        for statement in statements(forward):
            calls = calls_of(statement, "self.logits_processor")
            if isinstance(statement, cst.BaseCompoundStatement) or not calls:
                continue
            if any(one.star for call in calls for one in call.args):
                raise Ambiguous("self.logits_processor is called with *arguments")
            for aux in {states_handed(call)[1] for call in calls} - {""}:

                def put(depth: int, aux: str = aux) -> list[Statement]:
                    return self.lines([f"{aux} = self.in_order(", f"    {aux},", ")"])

                insertions.append(Insertion(statement, before=put))
        if not insertions:
            raise AnchorMissing(
                "nothing hands aux hidden states to self.logits_processor by name",
                like="input_ids, hidden_states, self.lm_head, forward_batch, aux",
            )
        return insert(forward, *insertions)


_WARN = """\
asked = list({layers})
found = sorted(set(asked))
if asked != found:
    import logging
    logging.getLogger(__name__).warning(
        "sort-layer-ids: the states in front of"
        " layers %s were asked for, but they are"
        " captured in layer order, each once: %s."
        " If the draft was trained on what was"
        " asked for: patchkit apply sort-layer-ids"
        " -O order=asked",
        asked,
        found,
    )
"""

_ASKED = """\
asked = list({layers})
found = sorted(set(asked))
self.aux_order = None
if asked != found:
    {layers} = found
    self.aux_order = [found.index(n) for n in asked]
"""

_IN_ORDER = """
aux_order = None

def in_order(self, states):
    order = self.aux_order
    if order is None or states is None:
        return states
    packed = isinstance(states, torch.Tensor)
    if packed:
        width = self.config.hidden_size
        states = states.split(width, dim=-1)
    wanted = len(set(order))
    if len(states) != wanted:
        raise RuntimeError(
            f"sort-layer-ids: captured {len(states)}"
            f" states, not {wanted}. Name layers of"
            " this rank, and leave two-batch overlap"
            " off"
        )
    states = [states[n] for n in order]
    if packed:
        states = torch.cat(states, dim=-1)
    return states
"""
