"""All that is known when findings are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from patchkit.draft.checkpoint import Checkpoint
from patchkit.draft.formats import Format, Ids, number
from patchkit.draft.maps import Map
from patchkit.draft.tree import Tree

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Evidence:
    """``config``: as SGLang reads it. ``fields``: the same, of a checkpoint whose
    configuration SGLang can't read made readable. ``target``: fields of the target's
    language model; ``wrapper``: the target's class is another's wrapper.

    ``asked``: the answer about ``config`` and its own class; ``build``: the one that
    further checks go by; ``assumed``: its class, where that is not the one that the
    configuration names. ``layers``: the answer of the target; ``prefills``: that of
    its miniature, ``None`` if it has none. ``renaming``: names that fit better, and
    ``renamed``, the load with these.
    """

    checkpoint: Checkpoint
    kind: Format
    config: Json
    fields: Json
    target: Json
    target_class: str
    wrapper: bool
    algorithm: str
    version: str
    tree: Tree
    ids: Ids
    asked: Json
    build: Json
    assumed: str
    layers: Json
    prefills: Json | None
    d2t: Map | None
    t2d: Map | None
    renaming: Mapping[str, str] = field(default_factory=dict)
    renamed: Json | None = None

    @property
    def built(self) -> bool:
        return not self.build["failed"]

    @property
    def load(self) -> Json:
        found: Json = self.build["loads"][0]
        return found

    @property
    def attributes(self) -> Json:
        found: Json = self.build["attributes"]
        return found

    @property
    def shared(self) -> Json:
        found: Json = self.build["shared"] or {"embed": False, "head": False}
        return found

    @property
    def eagle3(self) -> bool:
        return self.algorithm == "EAGLE3"

    @property
    def hidden(self) -> int | None:
        """Width of one state of the target."""
        return number(self.target, "hidden_size")

    @property
    def depth(self) -> int | None:
        """Layers of the target."""
        return number(self.target, "num_hidden_layers")

    @property
    def aux(self) -> bool:
        """Whether a server of this tree captures aux states for this draft."""
        eagle = self.config.get("eagle_config")
        off = isinstance(eagle, dict) and eagle.get("use_aux_hidden_state") is False
        reads = self.tree.mentions("use_aux_hidden_state")
        return self.eagle3 and not (off and reads)

    def step(self, which: int) -> Json:
        """What one call of the setter makes the target capture: ``asked`` layers, and
        those ``captured``, or an ``error``. -1: when prefills run; 0: when graphs are
        captured."""
        steps = self.layers.get("steps") or [{"error": "it was not asked"}]
        said = steps[which]
        if said["error"]:
            return {"asked": None, "captured": None, "error": said["error"]}
        asked = said["layers"]
        if self.tree.setters and self.tree.setters[which] != "default":
            asked = _in_order(self.ids, asked)
        if self.prefills is not None and not self.prefills["failed"]:
            ran = self.prefills["steps"][which]
            return {
                "asked": asked,
                "captured": ran.get("captured"),
                "error": ran["error"],
                "ran": True,
            }
        depth = self.depth or 0
        # as every model's loop does it: is this layer among them?
        held = [layer for layer in range(depth) if layer in asked]
        return {"asked": asked, "captured": held, "error": "", "ran": False}


def _in_order(ids: Ids, layers: list[Any]) -> list[Any]:
    """The layers that ids stand for, in the order of the ids: a setter may have put
    them in another, and still hand their states over as asked."""
    given = ids.ids if ids.read and isinstance(ids.ids, list) else None
    if given is None or not all(type(one) is int for one in [*given, *layers]):
        return layers
    ranks, places = sorted(set(given)), sorted(set(layers))
    if len(ranks) != len(places):
        return layers
    return [places[ranks.index(one)] for one in given]
