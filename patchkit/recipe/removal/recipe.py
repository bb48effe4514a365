"""What ``remove-aux-capture`` does to each of its files."""

from __future__ import annotations

import ast

from patchkit.model import Site, Status
from patchkit.recipe.anchors import Ambiguous, BadOption, Unmatched
from patchkit.recipe.removal.capture import Removal, captures, is_setter
from patchkit.recipe.removal.draft import drop_draft_path
from patchkit.recipe.removal.folding import drop_none_parameter
from patchkit.recipe.removal.others import files_that_hand_states, imported_from
from patchkit.recipe.removal.sweep import drop_unused_imports
from patchkit.recipe.wholetext import EditsText

TARGET = "srt/models/deepseek_v2.py"
LOGITS = "srt/layers/logits_processor.py"
DRAFT = "srt/models/llama_eagle3.py"
STATES = "aux_hidden_states"


class RemovesCapture(EditsText):
    """Options ``logits``, ``draft`` and ``force``: yes or no."""

    def check_options(self) -> None:
        for name, value in self.chosen.items():
            if value.strip().lower() not in ("yes", "no"):
                raise BadOption(f"{name}={value}: give yes or no")

    def asked(self, option: str) -> bool:
        return self.chosen[option].strip().lower() == "yes"

    def edit_text(self, text: str) -> str:
        path = (self.context.filename or "").replace("\\", "/")
        if path.endswith(LOGITS):
            site, edit = "logits", self.edit_logits
        elif path.endswith(DRAFT):
            site, edit = "draft", self.edit_draft
        else:
            site, edit = "capture", self.edit_target
        try:
            return edit(text)
        except Unmatched as problem:
            self.found.append(Site(site, problem.status, 0, problem.message))
            return text

    # -- deepseek_v2.py ---------------------------------------------------------------

    def edit_target(self, text: str) -> str:
        tree = ast.parse(text)
        if not captures(tree):
            if self._refuses(tree):
                self.found.append(Site("capture", Status.ALREADY_APPLIED))
            else:
                why = "this release captures no aux hidden states"
                self.found.append(Site("capture", Status.NOT_NEEDED, 0, why))
            return text
        removal = Removal(
            text,
            self._refusal(),
            needed=imported_from(self.surroundings, "deepseek_v2"),
            others=self.others,
        )
        done = removal.run()
        self.found.append(Site("capture", Status.CHANGED))
        if removal.kept:
            self.found.append(Site("capture", Status.NOT_NEEDED, 0, removal.kept))
        return done

    @property
    def others(self) -> dict[str, bytes]:
        """The models beside the target."""
        return {
            path: data for path, data in self.surroundings.items() if path != TARGET
        }

    # -- the other two ----------------------------------------------------------------

    def _may_edit(self, option: str) -> bool:
        """Whether to go on with what ``option`` asks for."""
        users = files_that_hand_states(self.others)
        many, names = len(users), ", ".join(users)
        if not self.asked(option):
            why = f"left alone (-O {option}=yes takes its part out)"
            if users and option == "logits":
                why = f"left alone: {many} other models hand it aux states: {names}"
            elif users:
                why = f"left alone: drafts of {many} other models need it"
            self.found.append(Site(option, Status.NOT_NEEDED, 0, why))
            return False
        if users and not self.asked("force"):
            raise Ambiguous(
                f"{many} other models hand aux states on, and need it: {names}. Leave"
                f" -O {option}=yes out, or add -O force=yes"
            )
        return True

    def edit_logits(self, text: str) -> str:
        if not self._may_edit("logits"):
            return text
        done = drop_none_parameter(text, "LogitsProcessor", "forward", STATES)
        if done == text:
            self.found.append(Site("logits", Status.ALREADY_APPLIED))
            return text
        needed = imported_from(self.surroundings, "logits_processor")
        done, _ = drop_unused_imports(done, text, needed)
        self.found.append(Site("logits", Status.CHANGED))
        return done

    def edit_draft(self, text: str) -> str:
        if not self._may_edit("draft"):
            return text
        done = drop_draft_path(text)
        changed = Status.CHANGED if done != text else Status.ALREADY_APPLIED
        self.found.append(Site("draft", changed))
        needed = imported_from(self.surroundings, "llama_eagle3")
        return drop_unused_imports(done, text, needed)[0]

    def _refusal(self) -> list[str]:
        """What a setter consists of afterwards."""
        return [
            "raise RuntimeError(",
            '    "patchkit took the aux-hidden-state capture out of deepseek_v2.py"',
            f'    " ({self.recipe_name()}): revert it to serve with an EAGLE-3 draft"',
            ")",
        ]

    def _refuses(self, tree: ast.Module) -> bool:
        """Whether a setter is what this recipe makes of it."""
        return any(
            isinstance(node, ast.FunctionDef)
            and is_setter(node.name)
            and isinstance(node.body[0], ast.Raise)
            and self.recipe_name() in ast.dump(node.body[0])
            for node in ast.walk(tree)
        )
