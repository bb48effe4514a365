"""Refuse hidden states of a width that the draft's fc does not take.

The draft sends what it is given through ``fc`` (k states side by side, to one) only if
its width differs from the embedding's. If the target hands on a single layer's state,
or its last one, the widths match, ``fc`` is skipped without a word and the draft drafts
noise: accept length 1.0. This adds a test in front of that choice.

What is given may be as wide as ``fc.in_features`` at any time; as wide as the draft's
hidden size only in a draft decode step, where the draft is given its own state back, or
if the draft's ``eagle_config`` says ``use_aux_hidden_state: false``. Everything else
raises a ValueError with both widths and k, which is ``in_features`` divided by the
target's hidden size. The same error replaces torch's about matrix shapes where a state
is too wide or of another model.

Idle batches are exempt: they have no rows, or rows of padding only. Attention data
parallelism runs a decode step, or an idle one, as an extend; the mode that it had is
what counts. A draft whose fc takes one state of its own width can't be told from the
fault: nothing is said there.

The test compares Python numbers once in each draft forward, and no value is read; CUDA
graph capture meets it with the widths of the graph.

-O report=warning says it once in the log, and goes on as before.

All releases have this shape. A draft whose ``fc`` is not torch's own Linear is refused.
"""

import libcst as cst

from patchkit.recipe import (
    Ambiguous,
    BadOption,
    Insertion,
    Members,
    Recipe,
    Statement,
    insert,
    insert_members,
    makes_plain_linear,
    method_of,
    width_guard,
    with_method,
)


class FcGuard(Recipe):
    version = 1
    summary = "refuse hidden states that the draft's fc would silently be skipped for"
    releases = "0.4.6 - 0.5.23, recognised by shape"
    next_step = "restart the server: what the draft is given is now tested"
    options = {
        "report": ("error", "error: raise; warning: say it once in the log and go on"),
    }
    sites = {"width": "the width of what the draft is given, in front of fc"}
    fixes = ("width-guard",)
    edits = {
        "srt/models/llama_eagle3.py": (Members("width", "LlamaModel", "check_width"),),
    }

    def check_options(self) -> None:
        if self.chosen["report"] not in ("error", "warning"):
            raise BadOption(f"report={self.chosen['report']}: give error or warning")

    def check_width(self, owner: cst.ClassDef) -> cst.ClassDef:
        forward, start = method_of(owner, "forward"), method_of(owner, "__init__")
        if forward is None or start is None:
            raise Ambiguous("LlamaModel has no forward or no __init__ of its own")
        guard, states = width_guard(forward)
        if "forward_batch" not in [one.name.value for one in forward.params.params]:
            raise Ambiguous("forward has no parameter forward_batch")
        if not makes_plain_linear(start, "self.fc"):
            raise Ambiguous("self.fc is not torch's own Linear: its width is unknown")

        def test(depth: int) -> list[Statement]:
            return self.lines(
                [
                    f"if {states}.shape[-1] != self.fc.in_features:",
                    "    self.check_fc_width(",
                    f"        {states},",
                    "        forward_batch,",
                    "    )",
                ]
            )

        changed = insert(forward, Insertion(guard, before=test))
        owner = with_method(owner, forward, changed)
        return insert_members(owner, last=self._check_fc_width)

    def _check_fc_width(self, depth: int) -> list[Statement]:
        lines = [
            "",
            "def check_fc_width(self, states, forward_batch):",
            "    width, hidden = states.shape[-1], self.fc.out_features",
            "    # with attention data parallelism the mode is rewritten",
            "    mode = getattr(",
            "        forward_batch,",
            '        "_original_forward_mode",',
            "        None,",
            "    )",
            "    mode = mode or forward_batch.forward_mode",
            "    if states.shape[0] == 0 or mode.is_idle():",
            "        return",
            '    eagle = getattr(self.config, "eagle_config", None) or {}',
            '    one = not eagle.get("use_aux_hidden_state", True)',
            "    if width == hidden and (one or mode.is_decode()):",
            "        return",
            "    wide = self.fc.in_features",
            "    part = (",
            '        getattr(self.config, "target_hidden_size", None)',
            "        or hidden",
            "    )",
            "    problem = (",
            '        f"fc-guard: the draft was given states {width} wide,"',
            '        f" but its fc takes {wide}: {wide // part} states"',
            '        f" of {part} side by side. Check that the target"',
            '        " captures as many layers as the draft\'s"',
            '        " configuration names: patchkit verify --only"',
            '        " capture, or patchkit apply debug-logging"',
            "    )",
        ]
        if self.chosen["report"] == "error":
            lines += ["    raise ValueError(problem)"]
        else:
            lines += [
                "    if not self.fc_width_told:",
                "        self.fc_width_told = True",
                "        import logging",
                "",
                "        log = logging.getLogger(__name__)",
                "        log.warning(problem)",
                "",
                "# said once",
                "fc_width_told = False",
            ]
        return self.lines(lines)
