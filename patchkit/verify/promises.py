"""What the applied recipes promise of this tree."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from patchkit.errors import PatchkitError, UsageError
from patchkit.model import Applied, Status
from patchkit.verify.evidence import Promise
from patchkit.workspace.tree import Workspace

#: The check of a variable that turns the capture off; a promise of it names the
#: option that holds the variable's name.
SWITCH = "capture-switch"
#: Checks that a recipe's ``fixes`` may name.
FIXABLE = frozenset(
    {
        *("capture", "fusion", "capture-order", "kimi-wrapper", "gate-on", SWITCH),
        *("capture-removed", "unsorted-ids", "embedding-ids", "width-guard"),
        *("weight-guard", "engine-steps"),
    }
)

#: The oracle's quantities; docs/verify.md says what each is.
VIEWS = frozenset(
    {
        *("target.states", "target.joined", "target.stream"),
        *("draft.received", "draft.entering", "draft.stream"),
    }
)


@dataclass(frozen=True)
class Promises:
    """``sites``: one for each that must speak. ``fixed``: checks that must pass, no
    known defect listed. ``changes``: patterns of outputs that may differ.
    ``switch``: the environment variable that turns the capture off; "" if none does.
    ``no_draft``: the draft's side of EAGLE-3 is out, so that no draft can be run.
    """

    sites: tuple[Promise, ...] = ()
    fixed: frozenset[str] = frozenset()
    changes: tuple[str, ...] = ()
    switch: str = ""
    no_draft: bool = False


def find_promises(workspace: Workspace) -> Promises:
    """Raises UsageError for a recipe that promises what there is not."""
    sites: list[Promise] = []
    fixed: set[str] = set()
    changes: list[str] = []
    switch, no_draft = "", False
    for one in workspace.recorded.recipes:
        try:
            info = workspace.registry.recorded(one)
        except PatchkitError:
            continue  # its file is gone: what it promised is not known
        absent = _absent(workspace.recorded.sites, one.name)
        chosen = {option.name: option.default for option in info.options}
        chosen.update(one.options)
        for site, views in info.promises:
            if not any(site == name or site.startswith(name + "_") for name in absent):
                sites.append(_promise(one, site, views, chosen))
        for claim in info.fixes:
            name, option = _split(claim)
            _expect_known(one, claim, FIXABLE, chosen)
            fixed.add(name)
            if name == SWITCH:
                switch = chosen[option] if option else ""
        changes += info.changes
        no_draft |= any(
            chosen.get(option, "").strip().lower() == "yes"
            for option in info.without_draft
        )
    return Promises(tuple(sites), frozenset(fixed), tuple(changes), switch, no_draft)


def _split(claim: str) -> tuple[str, str]:
    """``name[option]``: the value of an option says which."""
    name, _, option = claim.partition("[")
    return name, option.removesuffix("]")


def _expect_known(
    applied: Applied, claim: str, names: Collection[str], options: Mapping[str, str]
) -> None:
    name, option = _split(claim)
    if name not in names or (option and option not in options):
        raise UsageError(
            f"recipe {applied.name} promises {claim}, which there is not",
            hint=f"there are {', '.join(sorted(names))}",
        )


def _promise(
    applied: Applied, site: str, views: str, options: Mapping[str, str]
) -> Promise:
    names, layers = [], None
    for view in views.split():
        name, option = _split(view)
        _expect_known(applied, view, VIEWS, options)
        names.append(name)
        if option:
            layers = _layers(options[option])
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
