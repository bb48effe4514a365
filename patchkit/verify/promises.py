"""What the applied recipes promise of this tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patchkit.errors import PatchkitError, UsageError
from patchkit.model import Applied, Status
from patchkit.verify.evidence import Promise
from patchkit.workspace.tree import Workspace

#: The oracle's quantities; docs/verify.md says what each is.
VIEWS = frozenset(
    {
        *("target.states", "target.joined", "target.stream"),
        *("draft.received", "draft.entering", "draft.stream"),
    }
)


def find_promises(workspace: Workspace) -> tuple[Promise, ...]:
    """One entry for each site that must speak. Raises UsageError for a recipe that
    promises what there is not."""
    found = []
    for one in workspace.recorded.recipes:
        try:
            info = workspace.registry.recorded(one)
        except PatchkitError:
            continue  # its file is gone: what it promised is not known
        absent = _absent(workspace.recorded.sites, one.name)
        for site, views in info.promises:
            if any(site == name or site.startswith(name + "_") for name in absent):
                continue
            defaults = {option.name: option.default for option in info.options}
            found.append(_promise(one, site, views, defaults))
    return tuple(found)


def _promise(
    applied: Applied, site: str, views: str, defaults: Mapping[str, str]
) -> Promise:
    names, layers = [], None
    for view in views.split():
        name, _, option = view.partition("[")
        option = option.removesuffix("]")
        if name not in VIEWS or (option and option not in defaults):
            raise UsageError(
                f"recipe {applied.name} promises {view} of {site}, which there is not",
                hint=f"there are {', '.join(sorted(VIEWS))}",
            )
        names.append(name)
        if option:
            layers = _layers(applied.options.get(option, defaults[option]))
    return Promise(site, tuple(names), layers)


def _layers(value: str) -> frozenset[int] | None:
    """The layers that an option names; ``None``: all of them."""
    if value.strip().lower() == "all":
        return None
    numbers = [word.strip() for word in value.split(",")]
    return frozenset(int(word) for word in numbers if word.isdigit())


def _absent(rows: tuple[Mapping[str, Any], ...], recipe: str) -> set[str]:
    """Sites of ``recipe`` that this tree does not need."""
    return {
        site["name"]
        for row in rows
        if row["recipe"] == recipe
        for site in row["sites"]
        if site["status"] == Status.NOT_NEEDED.value
    }
