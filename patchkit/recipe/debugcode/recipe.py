"""What the recipes for hand-written debug code share."""

from __future__ import annotations

import re

from patchkit.model import LEFT_ALONE, Site, Status
from patchkit.recipe.anchors import BadOption
from patchkit.recipe.debugcode import Edited, wanted
from patchkit.recipe.wholetext import EditsText


class EditsDebugCode(EditsText):
    """Options ``pattern`` and ``calls``, and ``dumps`` where the recipe has it."""

    def check_options(self) -> None:
        dumps = self.chosen.get("dumps", "yes").strip().lower()
        if dumps not in ("yes", "no"):
            raise BadOption(f"dumps={dumps}: give yes or no")
        pattern = self.chosen["pattern"]
        try:
            self.wanted = wanted(
                pattern,
                self.chosen["calls"],
                dumps == "yes",
                # no release has a logger there; the others all have
                not (self.context.filename or "").endswith("llama_eagle3.py"),
            )
        except re.error as problem:
            raise BadOption(
                f"pattern={pattern!r} is no regular expression: {problem}"
            ) from None

    def report(self, edited: Edited, site: str, standing: bool) -> str:
        """Record what was done and what was left; ``standing``: done before."""
        for line in edited.places:
            self.found.append(Site(site, Status.CHANGED, line))
        if standing and not edited.places:
            self.found.append(Site(site, Status.ALREADY_APPLIED))
        for line, why in edited.left:
            self.found.append(Site(LEFT_ALONE, Status.NOT_NEEDED, line, why))
        if not self.found:
            file = (self.context.filename or "").rpartition("/")[2]
            why = f"no hand-written debug code in {file}"
            self.found.append(Site(site, Status.NOT_NEEDED, 0, why))
        return edited.text
