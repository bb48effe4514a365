"""What a configuration must be like before anything is asked about it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from patchkit.draft.formats import first_class, language_fields, number
from patchkit.errors import Refused

_MOST_LAYERS = 1000
#: What the checks go by; nothing can be said of a target without them.
_SIZES = ("hidden_size", "num_hidden_layers", "vocab_size")

Json = Mapping[str, Any]


def expect_few_layers(place: Path, config: Json) -> None:
    """Raises Refused for so many layers that building them would never end."""
    for fields in (config, language_fields(config)):
        count = number(fields, "num_hidden_layers") or 0
        if count > _MOST_LAYERS:
            raise Refused(
                f"{place}: config.json says num_hidden_layers {count}",
                hint="no model has so many: is it the right file?",
            )


def expect_target(place: Path, config: Json, drafts: Collection[str]) -> None:
    """Raises Refused for what is no target's configuration. ``drafts``: the tree's
    classes that are drafts."""
    name = first_class(config)
    hint = "--against must be the config.json of the model that is to be served"
    if not name:
        given = config.get("architectures")
        said = (
            f"its architectures: {given!r:.40}"
            if given
            else "it names no architectures"
        )
        raise Refused(f"{place} is no model's configuration: {said}", hint=hint)
    if name in drafts:
        raise Refused(f"{place} is a draft's: {name}", hint=hint)
    fields = language_fields(config)
    for size in _SIZES:
        if not number(fields, size):
            value = f"{fields[size]!r:.40}" if size in fields else "missing"
            raise Refused(
                f"{place}: {size} is {value}, where a number is needed", hint=hint
            )
