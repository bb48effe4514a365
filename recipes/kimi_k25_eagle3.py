"""Let the Kimi-K2.5 wrapper hand EAGLE-3's calls on to its language model.

SGLang asks a target model for its embedding and head (``get_embed_and_head``), and to
capture aux hidden states (``set_eagle3_layers_to_capture``). The vision wrapper of
Kimi-K2.5 in 0.5.9 has neither, so a server with an EAGLE-3 draft ends at its start with
an AttributeError. This adds these two and ``set_embed_and_head`` at the end of the
class; each passes its arguments on, unchanged, to ``self.language_model``, which is the
DeepSeek model and has all three.

Only the missing ones are added. From 0.5.10 on the wrapper has them: NOT_NEEDED.
Before 0.5.9 there is no such wrapper: NOT_NEEDED. A class that sets no
``self.language_model`` in ``__init__`` is left alone and reported.

Nothing else of the wrapper is changed: text and images take the same path, and the
layers are those that the language model makes of the ids. It takes no options.
"""

import libcst as cst

from patchkit.recipe import (
    AnchorMissing,
    Members,
    NotNeeded,
    Recipe,
    Statement,
    code,
    insert_members,
    only,
    statements,
)

MODEL = "self.language_model"
#: method -> its parameters, what it passes on, and how it answers
DELEGATES = {
    "set_eagle3_layers_to_capture": ("layer_ids=None", "layer_ids", ""),
    "get_embed_and_head": ("", "", "return "),
    "set_embed_and_head": ("embed, head", "embed, head", ""),
}


class KimiK25Eagle3(Recipe):
    version = 1
    summary = "hand EAGLE-3's calls on from the Kimi-K2.5 wrapper"
    releases = "0.5.9, recognised by shape"
    next_step = "start the server with the EAGLE-3 draft again"
    absent = {
        "srt/models/kimi_k25.py": "this release has no Kimi-K2.5 wrapper",
    }
    sites = {"delegates": "EAGLE-3's calls, handed on to the language model"}
    fixes = ("kimi-wrapper",)
    edits = {
        "srt/models/kimi_k25.py": (
            Members("delegates", "KimiK25ForConditionalGeneration", "add_delegates"),
        ),
    }

    def add_delegates(self, owner: cst.ClassDef) -> cst.ClassDef:
        methods = {
            node.name.value: node
            for node in owner.body.body
            if isinstance(node, cst.FunctionDef)
        }
        missing = [name for name in DELEGATES if name not in methods]
        if not missing:
            raise NotNeeded("the wrapper hands EAGLE-3's calls on already")
        start = methods.get("__init__")
        if start is None or not _assigns(start, MODEL):
            raise AnchorMissing(
                f"__init__ sets no {MODEL} to hand calls on to",
                like="self.language_model = DeepseekV3ForCausalLM(",
            )

        def build(depth: int) -> list[Statement]:
            found = []
            for name in missing:
                parameters, passed, answer = DELEGATES[name]
                arguments = ", ".join(filter(None, ("self", parameters)))
                found += [
                    "",
                    f"def {name}({arguments}):",
                    f"    model = {MODEL}",
                    f"    {answer}model.{name}({passed})",
                ]
            return self.lines(found)

        return insert_members(owner, last=build)


def _assigns(function: cst.FunctionDef, target: str) -> bool:
    for statement in statements(function):
        node = only(statement)
        targets: list[cst.CSTNode] = []
        if isinstance(node, cst.Assign):
            targets = [one.target for one in node.targets]
        elif isinstance(node, cst.AnnAssign):
            targets = [node.target]
        if target in map(code, targets):
            return True
    return False
