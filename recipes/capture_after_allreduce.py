"""Capture the aux hidden states behind the deferred all-reduce.

With tensor parallelism and all-reduce fusion (on by default for DeepSeek on sm90 and
sm100), a layer leaves its output unreduced and the next one reduces, adds and norms it
in one kernel. In 0.5.4.post2 - 0.5.13.post1 the capture stands in between: each rank
captures its part of the sum, so the draft is given wrong states, while the target's own
output is right and nothing shows it but a low accept length.

In front of each captured layer, if the output of the layer before is still unreduced,
it is reduced there, by the all-reduce that the layer would have used itself, and no
longer marked; the captured layer then takes its ordinary norm. So the number of
all-reduces stays the same: at each captured layer (three, by default) one plain
all-reduce and one norm take the place of the fused kernel. Without fusion, or on one
rank, all that is added is one attribute test for each captured layer. It is decided in
Python as SGLang decides it for its fused kernel, so CUDA graphs capture the right one.

Nothing changes where rows are spread over ranks: what is gathered for expert
parallelism is left as it is, and a layer marks its output only where the next one would
have reduced it anyway.

From 0.5.14 on the capture stands behind the all-reduce, inside the layer: NOT_NEEDED.
So it is where nothing is captured, and behind ``aux-capture``, which reduces by itself.
It takes no options.
"""

import libcst as cst

from patchkit.recipe import (
    Ambiguous,
    Insertion,
    Members,
    Method,
    NotNeeded,
    Recipe,
    Statement,
    code,
    deferral_mark,
    find_captures,
    insert,
    insert_members,
    method_of,
    with_method,
)


class CaptureAfterAllreduce(Recipe):
    version = 1
    summary = "capture the aux states behind the deferred all-reduce"
    releases = "0.5.4.post2 - 0.5.13.post1, recognised by shape"
    next_step = "patchkit verify --only fusion, then restart the server"
    after = ("aux-capture",)
    sites = {
        "layer": "whether a layer leaves its all-reduce to the next one",
        "capture": "what is captured is reduced first",
    }
    fixes = ("fusion",)
    edits = {
        "srt/models/deepseek_v2.py": (
            Method("layer", "DeepseekV2DecoderLayer", "forward", "look_at_layer"),
            Members("capture", "DeepseekV2Model", "reduce_first"),
        ),
    }

    #: the attribute that says that a layer's output is still unreduced
    deferral = ""

    def look_at_layer(self, function: cst.FunctionDef) -> cst.FunctionDef:
        self.deferral = deferral_mark(function)
        if self.deferral:
            raise NotNeeded(f"marks an unreduced output with {self.deferral}")
        raise NotNeeded("each layer reduces its own output")

    def reduce_first(self, owner: cst.ClassDef) -> cst.ClassDef:
        forward = method_of(owner, "forward")
        if forward is None:
            raise Ambiguous("DeepseekV2Model has no forward")
        found = find_captures(forward)
        if found.keyword:
            raise NotNeeded("the layers of this release capture behind the all-reduce")
        if not found.inline:
            if found.other:
                raise NotNeeded("what is captured here is not the unreduced sum")
            raise NotNeeded("this release captures no aux hidden states")
        if not self.deferral:
            raise NotNeeded("each layer reduces its own output")
        hidden = found.hidden

        def reduce(depth: int) -> list[Statement]:
            return self.lines(
                [f"{hidden} = self.reduced(", f"    {hidden},", ")"],
            )

        insertions = []
        for branch in found.inline:
            if "all_reduce" in code(branch):
                raise Ambiguous("the capture reduces by itself already: by hand?")
            if not isinstance(branch.body, cst.IndentedBlock):
                raise Ambiguous("the capture is on the line of its if")
            insertions.append(Insertion(branch.body.body[0], before=reduce))
        owner = with_method(owner, forward, insert(forward, *insertions))
        return insert_members(owner, last=self._reduced)

    def _reduced(self, depth: int) -> list[Statement]:
        return self.lines(
            [
                "",
                "def reduced(self, states):",
                f'    mark = "{self.deferral}"',
                "    if not getattr(states, mark, False):",
                "        return states",
                "    from sglang.srt.distributed import (",
                "        tensor_model_parallel_all_reduce,",
                "    )",
                "    # may work in place: the mark stays on",
                "    states = tensor_model_parallel_all_reduce(",
                "        states,",
                "    )",
                "    setattr(states, mark, False)",
                "    return states",
            ]
        )
