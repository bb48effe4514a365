"""Let layer id -1 capture the embedding output.

Drafts of some makers name -1 among their layers: the output of the embedding, in front
of layer 0. Stock releases can't deliver it. Up to 0.5.12 it becomes layer 0, where no
residual is there to add, and the first forward ends in a TypeError; in 0.5.13 - 0.5.16
it never matches, and one state is missing without a word; from 0.5.17 on an assertion
fails. From 0.5.13 on it also changes what the other ids mean: they are moved up by one
only if the first of them is 1, and -1 in front of it hides that.

The setter takes -1 out of the ids, lets SGLang make layers of the rest by its own rule,
which now looks at the first id that is not negative, and puts the embedding back in its
place among them:

- where layers capture inside the loop (0.5.4.post2 - 0.5.13.post1), as -1 in
  ``layers_to_capture``. In front of the loop a copy of the embedding output is captured
  if -1 is there; the loop never meets it;
- where the layer call captures (0.5.14 on), as 0: layer 0 captures what it is given,
  which is the embedding output.

Ids without -1 are treated as before, and cost one look at a short list in each forward.
DFlash's setter, where there is one, is treated alike. With pipeline parallelism the
first rank has the embedding and the last one captures: -1 raises at the server's start.

In trees without capture it is NOT_NEEDED, and behind ``aux-capture``, which captures
the embedding by itself. In which order states come that were asked for out of order is
not its business: see ``sort-layer-ids``. It takes no options.
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
    Statement,
    append_target,
    bound_before,
    calls_of,
    code,
    find_captures,
    ids_parameter,
    insert,
    insert_behind_layers,
    insert_first,
    layers_target,
    setters_of,
    with_method,
)

NONE = "this release captures no aux hidden states"
OWN = "aux-capture captures the embedding by itself"


class EmbeddingCapture(Recipe):
    version = 1
    summary = "let layer id -1 capture the embedding output"
    releases = "0.5.4.post2 - 0.5.23, recognised by shape"
    next_step = "name -1 among the draft's layer ids, and restart the server"
    after = ("aux-capture",)
    excludes = ("remove-aux-capture",)
    sites = {
        "embedding": "the embedding output, captured in front of the layers",
        "setters": "-1 among the layer ids",
    }
    fixes = ("embedding-ids",)
    edits = {
        "srt/models/deepseek_v2.py": (
            Method("embedding", "DeepseekV2Model", "forward", "capture_embedding"),
            Members("setters", "DeepseekV2ForCausalLM", "take_minus_one"),
        ),
    }

    #: what stands for the embedding in ``layers_to_capture``; or why nothing does
    place = ""
    reason = ""

    def capture_embedding(self, function: cst.FunctionDef) -> cst.FunctionDef:
        found = find_captures(function)
        if found.keyword:
            self.place = "0"
            raise NotNeeded("layer 0 captures what it is given: the embedding output")
        if not found.inline:
            self.reason = NONE
            if found.other:
                own = [
                    one
                    for one in found.other
                    if calls_of(one, "self._aux_hidden_state")
                ]
                if own != list(found.other):
                    raise Ambiguous(
                        "the loop captures, but not hidden states plus residual:"
                        f" if {code(found.other[0].test)}"
                    )
                self.reason = OWN
            raise NotNeeded(self.reason)
        self.place = "-1"
        loop = found.call.loop
        states = {append_target(branch) for branch in found.inline}
        if len(states) != 1:
            raise Ambiguous("the states are appended to more than one list")
        (aux,) = states
        if loop not in function.body.body:
            raise Ambiguous("the loop over self.layers is inside another block")
        for name in (aux, found.hidden):
            if not bound_before(function, loop, name):
                raise Ambiguous(f"{name} may have no value in front of the layer loop")

        def capture(depth: int) -> list[Statement]:
            return self.lines(
                [
                    "if -1 in self.layers_to_capture:",
                    "    # a copy: layer 0 works on it in place",
                    f"    embedding = {found.hidden}.clone()",
                    f"    {aux}.append(embedding)",
                ]
            )

        return insert(function, Insertion(loop, before=capture))

    def take_minus_one(self, owner: cst.ClassDef) -> cst.ClassDef:
        if not self.place:
            raise NotNeeded(self.reason or NONE)
        setters = setters_of(owner)
        if not setters:
            raise AnchorMissing(
                "no setter of layers to capture",
                like="def set_eagle3_layers_to_capture(self, layer_ids):",
            )
        for setter in setters:
            ids, layers = ids_parameter(setter), layers_target(setter)
            ranks = "self.pp_group." in code(setter)

            def take(
                depth: int, ids: str = ids, ranks: bool = ranks
            ) -> list[Statement]:
                return self.lines(_take(ids, ranks))

            def put(depth: int, layers: str = layers) -> list[Statement]:
                return self.lines(
                    [
                        "for at in embedding:",
                        f"    {layers}.insert(at, {self.place})",
                    ]
                )

            changed = insert_behind_layers(insert_first(setter, take), put)
            owner = with_method(owner, setter, changed)
        return owner


def _take(ids: str, ranks: bool) -> list[str]:
    lines = [
        f"wanted = {ids} or ()",
        "embedding = [",
        "    at",
        "    for at, n in enumerate(wanted)",
        "    if n == -1",
        "]",
        "if embedding:",
    ]
    if ranks:
        lines += [
            "    if self.pp_group.world_size > 1:",
            "        raise ValueError(",
            '            "embedding-capture: layer id -1 is"',
            '            " out of reach of the last pipeline"',
            '            " rank. Serve without pipeline"',
            '            " parallelism, or a draft without -1"',
            "        )",
        ]
    return [*lines, f"    {ids} = [n for n in wanted if n != -1]"]
