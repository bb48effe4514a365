"""A draft's config.json: which layers it was trained on, and what that means where.

``[1, 29, 57]`` are layers whose *output* the draft wants. SGLang captures in front of a
layer, and releases differ in how ids become layers:

- 0.5.4.post2 to 0.5.12.post1: always one added;
- 0.5.13 on: one added only if the first id is 1, else taken as they are.

Without ids, ``[2, n // 2, n - 3]`` of a target of n layers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.errors import PatchkitError

_NAMES = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids",
          "eagle_layer_ids")  # fmt: skip
_ALWAYS = "0.5.4.post2 to 0.5.12.post1 (always one added)"
_FIRST = "0.5.13 on (one added only if the first id is 1)"


@dataclass(frozen=True)
class Verdict:
    fits: bool
    title: str
    text: str
    hint: str = ""


@dataclass(frozen=True)
class Draft:
    """``ids``: None where the config has none. ``always``: which rule the release that
    serves has; None: not known."""

    file: str
    ids: tuple[int, ...] | None
    fc_width: int | None
    fc_why: str
    always: bool | None = None

    def judge(self, captured: Sequence[int]) -> Verdict:
        """Whether ``captured`` are the layers that the ids mean."""
        found = list(captured)
        if self.ids is None:
            return self._without_ids(found)
        shown = (
            f"captured in front of layers {found}, the config's ids are {[*self.ids]}"
        )
        if list(self.ids) != sorted(set(self.ids)):
            return Verdict(
                False,
                "the layer ids of the draft's config are not in ascending order",
                f"{shown}: SGLang captures in the order of the layers, and each once.",
                "the draft's fc must expect its states in that order too",
            )
        plus = [one + 1 for one in self.ids]
        first = plus if self.ids[:1] == (1,) else list(self.ids)
        rules = [(plus, True, _ALWAYS), (first, False, _FIRST)]
        if self.always is not None:
            rules = [one for one in rules if one[1] == self.always]
        fitting = [text for layers, _, text in rules if layers == found]
        if fitting:
            rule = " and ".join(fitting)
            return Verdict(
                True,
                "the captured layers are those of the draft's config",
                f"{shown}. Rule assumed: releases {rule}.",
                "" if plus == first or self.always is not None else
                "the rules differ for these ids: --release VERSION says which holds",
            )  # fmt: skip
        wanted = " or ".join(
            dict.fromkeys(f"{one[0]} in releases {one[2]}" for one in rules)
        )
        return Verdict(
            False,
            "the captured layers are not those of the draft's config",
            f"{shown}; that means {wanted}.{self._why(found, rules[0][0])}",
            "ids are read from eagle_config in the draft's config.json; releases up to"
            " 0.5.10.post1 ignore them inside CUDA graphs",
        )

    def _why(self, found: list[int], plus: list[int]) -> str:
        if len(found) != len(plus):
            return f" {len(found)} instead of {len(plus)} states."
        steps = {one - other for one, other in zip(found, plus)}
        if len(steps) == 1:
            (step,) = steps
            by = "a layer" if abs(step) == 1 else f"{abs(step)} layers"
            return f" All are {by} too {'late' if step > 0 else 'early'}."
        layers = _default_of(found)
        if layers is not None:
            return (
                f" They are the default of a target of {layers} layers: the ids were"
                " not used."
            )
        return ""

    def _without_ids(self, found: list[int]) -> Verdict:
        layers = _default_of(found)
        shown = f"captured in front of layers {found}, the config has no ids"
        if layers is not None:
            return Verdict(
                True,
                "the captured layers are the default ones",
                f"{shown}: the default of a target of {layers} layers.",
            )
        return Verdict(
            False,
            "the captured layers are not the default ones",
            f"{shown}, which means [2, n // 2, n - 3] of n layers.",
            "give the draft's config.json its eagle_aux_hidden_state_layer_ids (in"
            " eagle_config), if it was trained on other layers",
        )


def _default_of(found: Sequence[int]) -> int | None:
    """n, if these are [2, n // 2, n - 3]."""
    if len(found) != 3 or found[0] != 2:
        return None
    layers = found[2] + 3
    return layers if found[1] == layers // 2 else None


def read_draft(folder: Path, release: str | None) -> Draft:
    """From ``folder``/config.json, or the file itself. Raises PatchkitError (3)."""
    file = folder / "config.json" if folder.is_dir() else folder
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError) as problem:
        raise PatchkitError(
            f"--draft {folder}: {file} can't be read: {problem}",
            hint="give the folder that holds the draft's config.json",
        ) from None
    if not isinstance(config, dict):
        raise PatchkitError(
            f"--draft {folder}: {file} holds no configuration",
            hint="is it the right file?",
        )
    ids = _ids(config)
    hidden = config.get("target_hidden_size") or config.get("hidden_size")
    count = config.get("num_aux_hidden_states") or (len(ids) if ids is not None else 3)
    width = (
        hidden * count if isinstance(hidden, int) and isinstance(count, int) else None
    )
    why = f"{count} states of {hidden} columns by {file.name}"
    return Draft(str(file), ids, width, why, _always(release))


def _ids(config: dict[str, Any]) -> tuple[int, ...] | None:
    """None: there are none. Raises PatchkitError for malformed ones."""
    eagle = config.get("eagle_config")
    for place in (eagle, config):
        if isinstance(place, dict):
            for name in _NAMES:
                ids = place.get(name)
                if ids is None:
                    continue
                if not isinstance(ids, list) or not (
                    ids and all(type(one) is int for one in ids)
                ):
                    raise PatchkitError(
                        f"--draft: {name} is {ids!r:.60}, no list of layers",
                        hint="patchkit check-draft says what a server makes of it",
                    )
                return tuple(ids)
    return None


def _always(release: str | None) -> bool | None:
    if release is None:
        return None
    numbers = re.match(r"v?(\d+)\.(\d+)\.(\d+)", release)
    if numbers is None:
        raise PatchkitError(
            f"--release {release} is no version", hint="give one like 0.5.9"
        )
    return tuple(map(int, numbers.groups())) < (0, 5, 13)
