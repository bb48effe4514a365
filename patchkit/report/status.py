"""status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patchkit.model import TAP_FOLDER, FileState
from patchkit.report.style import Style, wrap

Json = dict[str, Any]

_COLOURS = {
    FileState.APPLIED: "green",
    FileState.NOT_APPLIED: "",
    FileState.NOT_NEEDED: "",
    FileState.OUTDATED: "yellow",
    FileState.DRIFTED: "yellow",
}


def status_text(value: Json, style: Style) -> str:
    lines = [f"SGLang {value['target']['sglang']} at {value['target']['package']}"]
    lines += _python_lines(value, style)
    others = [
        one["name"]
        for one in value["recipes"]
        if one["state"] == FileState.NOT_APPLIED.value and not one["detail"]
    ]
    for one in value["recipes"]:
        if one["name"] in others:
            continue
        state = FileState(one["state"])
        options = "".join(f" {k}={v}" for k, v in one["options"].items())
        version = f" {one['version']}" if one["version"] else ""
        name = style(one["name"], "bold") + version + options
        lines += ["", f"{name}  {_state(state, style)}"]
        if one["detail"]:
            lines += [f"  {line}" for line in wrap(one["detail"], 76)]
        rows = [(f["path"], FileState(f["state"])) for f in one["files"]]
        lines += [
            f"  {path:<38} {_state(found, style)}" for path, found in _fold_tap(rows)
        ]
    if others:
        lines += ["", *wrap(f"NOT APPLIED: {', '.join(others)}", 78)]
    advice = _advice(value, style)
    return "\n".join([*lines, *([""] if advice else []), *advice])


#: What to do about a state.
_ADVICE = {
    FileState.OUTDATED: "patchkit reapply renews it",
    FileState.OVERWRITTEN: "patchkit reapply puts the patch back",
    FileState.MISSING: "patchkit reapply writes it again",
    FileState.REPLACED: "patchkit reapply patches the SGLang that is here now",
    FileState.DRIFTED: "patchkit diff --drift shows your edits",
}


def _advice(value: Json, style: Style) -> list[str]:
    states = {FileState(one["state"]) for one in value["recipes"]}
    found = dict.fromkeys(_ADVICE[one] for one in _ADVICE if one in states)
    return [f"{style('next:', 'bold')} {text}" for text in found]


def _python_lines(value: Json, style: Style) -> list[str]:
    if value["imported"] is None:
        return []
    if value["is_imported"]:
        return [style("this is the copy that python imports", "dim")]
    return [f"{style('warning:', 'yellow')} python imports {value['imported']}"]


def _state(state: FileState, style: Style) -> str:
    return style(state.value, _COLOURS.get(state, "red"))


def _fold_tap(rows: Sequence[tuple[str, FileState]]) -> list[tuple[str, FileState]]:
    """One row for the tap's files where they stand alike."""
    tap = [row for row in rows if row[0].startswith(TAP_FOLDER + "/")]
    if len({state for _, state in tap}) != 1:
        return list(rows)
    others = [row for row in rows if row not in tap]
    return [*others, (f"{TAP_FOLDER}/ ({len(tap)} files)", tap[0][1])]
