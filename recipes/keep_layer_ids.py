"""Make CUDA graphs capture the layers that the draft asks for.

Up to 0.5.10.post1 the graph runner calls ``set_eagle3_layers_to_capture()`` without
ids right before it captures its graphs; the model runner passes the draft's own ids
only afterwards. So graph replay (decode, verify) captures the default layers, prefill
those of the draft, and the draft is fed from two different sets. It is harmless only
where the ids are the default ones (61 layers, ids 1, 29 and 57).

What a call without ids means is changed here, in ``deepseek_v2.py`` alone:

- after a call with ids, it keeps these ids (a warm-up, graphs captured again);
- before one, at a server's start, remembering would not help: it takes the ids from
  the draft's configuration, read with ``ModelConfig.from_server_args`` as the model
  runner does later, from ``eagle_config["eagle_aux_hidden_state_layer_ids"]``.

A server without a draft path, or a draft without ids in its configuration, gets the
default layers as before, in graphs and in prefill. What it can't do: know ids that a
runner of a fork takes from elsewhere. If the runners of this tree never name
``eagle_aux_hidden_state_layer_ids``, it refuses.

It looks at ``srt/model_executor/``: from 0.5.11 on nothing there calls the setter
without ids, and before 0.5.4.post2 there is no setter: NOT_NEEDED. So it is on top of
``aux-capture`` up to 0.5.3, where a model can't see the server's arguments. Where there
is nothing to look at (LibCST's own runner), it is applied; in a tree that always passes
ids it changes nothing. It takes no options.
"""

import ast

import libcst as cst

from patchkit.recipe import (
    Ambiguous,
    Members,
    NotNeeded,
    Recipe,
    Statement,
    ids_parameter,
    insert_first,
    insert_members,
    method_of,
    with_method,
)

SETTER = "set_eagle3_layers_to_capture"
KEY = "eagle_aux_hidden_state_layer_ids"


class KeepLayerIds(Recipe):
    version = 1
    summary = "let CUDA graphs capture the layers that the draft asks for"
    releases = "0.5.4.post2 - 0.5.10.post1, recognised by shape"
    next_step = "restart the server: its graphs are captured anew"
    looks_at = (
        "srt/model_executor/*.py",
        "srt/model_executor/*/*.py",
        "srt/server_args.py",
    )
    # both set the ids in the same function: this one's lines go above theirs
    after = ("aux-capture", "embedding-capture")
    sites = {"setter": "a call without ids means the draft's ids"}
    fixes = ("capture-order",)
    edits = {
        "srt/models/deepseek_v2.py": (
            Members("setter", "DeepseekV2ForCausalLM", "keep_ids"),
        ),
    }

    def keep_ids(self, owner: cst.ClassDef) -> cst.ClassDef:
        setter = method_of(owner, SETTER)
        if setter is None:
            raise NotNeeded("this release captures no aux hidden states")
        if self.surroundings:
            self._expect_late_ids()
        ids = ids_parameter(setter)

        def remember(depth: int) -> list[Statement]:
            return self.lines(
                [
                    f"if {ids} is not None:",
                    f"    self.explicit_layer_ids = list({ids})",
                    'elif hasattr(self, "explicit_layer_ids"):',
                    f"    {ids} = self.explicit_layer_ids",
                    "else:",
                    f"    {ids} = self.draft_layer_ids()",
                ]
            )

        owner = with_method(owner, setter, insert_first(setter, remember))
        return insert_members(owner, last=self._draft_layer_ids)

    def _draft_layer_ids(self, depth: int) -> list[Statement]:
        return self.lines(
            [
                "",
                "def draft_layer_ids(self):",
                "    from sglang.srt import server_args",
                "    from sglang.srt.configs import model_config",
                "    args = server_args.get_global_server_args()",
                "    path = args.speculative_draft_model_path",
                "    if path is None:",
                "        return None",
                "    rev = args.speculative_draft_model_revision",
                "    read = model_config.ModelConfig",
                "    config = read.from_server_args(",
                "        args,",
                "        model_path=path,",
                "        model_revision=rev,",
                "        is_draft_model=True,",
                "    ).hf_config",
                '    eagle = getattr(config, "eagle_config", None)',
                f'    key = "{KEY}"',
                "    return (eagle or {}).get(key)",
            ]
        )

    def _expect_late_ids(self) -> None:
        """Raise NotNeeded unless a runner of this tree calls the setter without ids,
        and Ambiguous if it is not known where its ids come from."""
        counts = [
            count for data in self.surroundings.values() for count in _arguments(data)
        ]
        if 0 not in counts:
            raise NotNeeded("no runner of this release calls the setter without ids")
        arguments = self.surroundings.get("srt/server_args.py", b"")
        if b"def get_global_server_args(" not in arguments:
            raise NotNeeded(
                "a model of this release can't see the server's arguments, so the"
                " draft's ids are out of reach here"
            )
        if not any(KEY.encode() in data for data in self.surroundings.values()):
            raise Ambiguous(
                f"no runner names {KEY}: where the ids come from is unknown"
            )


def _arguments(data: bytes) -> list[int]:
    """The number of arguments of each call of the setter in a file."""
    if SETTER.encode() not in data:
        return []
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError) as problem:
        raise Ambiguous(f"a runner of this tree can't be read: {problem}") from None
    return [
        len(node.args) + len(node.keywords)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == SETTER
    ]
