"""Results as text for people and as JSON for programs. No I/O."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from patchkit.errors import PatchkitError
from patchkit.model import (
    LEFT_ALONE,
    TAP_FOLDER,
    FileState,
    Outcome,
    RecipeInfo,
    Status,
    Target,
)
from patchkit.textdiff import added_and_removed

Json = dict[str, Any]

_COLOURS = {
    FileState.APPLIED: "green",
    FileState.NOT_APPLIED: "",
    FileState.NOT_NEEDED: "",
    FileState.OUTDATED: "yellow",
    FileState.DRIFTED: "yellow",
}


class Style:
    """ANSI styles, or none of them; ``width`` of the terminal, 0 if it is none."""

    def __init__(self, colour: bool, width: int = 0):
        self.colour = colour
        self.width = width

    def __call__(self, text: str, *codes: str) -> str:
        numbers = [_CODES[code] for code in codes if code]
        if not self.colour or not numbers:
            return text
        return f"\x1b[{';'.join(numbers)}m{text}\x1b[0m"


_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33",
          "cyan": "36"}  # fmt: skip


def target_json(target: Target) -> Json:
    return {
        "package": str(target.package),
        "layout": target.layout,
        "sglang": target.version,
        "journal": str(target.journal),
    }


# -- errors -----------------------------------------------------------------------


def error_json(problem: PatchkitError) -> Json:
    return {
        "error": {
            "message": problem.message,
            "hint": problem.hint,
            "details": list(problem.details),
            "exit_code": problem.exit_code,
        }
    }


def error_text(problem: PatchkitError, style: Style) -> str:
    lines = _labelled(style("error:", "red", "bold"), problem.message, style)
    lines += [f"  {line}" for line in problem.details]
    if problem.hint:
        lines += _labelled(style("next:", "bold"), problem.hint, style)
    return "\n".join(lines)


def _labelled(label: str, text: str, style: Style) -> list[str]:
    """``label text``, wrapped on a terminal only: programs match whole lines."""
    if not style.width:
        return [f"{label} {text}"]
    first, *more = wrap(text, max(40, style.width - 8)) or [""]
    return [f"{label} {first}", *(f"      {line}" for line in more)]


# -- list and show ----------------------------------------------------------------


def recipe_json(info: RecipeInfo, tap_environment: Sequence[tuple[str, str]]) -> Json:
    environment = [*info.environment, *(tap_environment if info.uses_tap else ())]
    return {
        "name": info.name,
        "version": info.version,
        "summary": info.summary,
        "doc": info.doc,
        "files": list(info.files),
        "options": [
            {"name": one.name, "default": one.default, "help": one.help}
            for one in info.options
        ],
        "environment": [{"name": k, "help": v} for k, v in environment],
        "sites": [{"name": k, "says": v} for k, v in info.sites],
        "releases": info.releases,
        "inserts_only": info.inserts_only,
        "origin": info.origin,
        "path": str(info.path),
    }


def list_text(recipes: Iterable[RecipeInfo], style: Style) -> str:
    lines = []
    for info in recipes:
        lines.append(f"{style(info.name, 'bold')}  {info.summary}")
        files = ", ".join(Path(one).name for one in info.files)
        lines.append(style(f"    {files}", "dim"))
    return "\n".join(lines)


def show_text(value: Json, style: Style) -> str:
    lines = [
        f"{style(value['name'], 'bold')} {value['version']}  {value['summary']}",
        "",
        *value["doc"].split("\n"),
        "",
        f"{style('Releases', 'bold')}  {value['releases'] or 'not said'}",
    ]
    rows = [(one, "") for one in value["files"]]
    lines += _section("Files", rows, style)
    lines += _section("Sites", [(s["name"], s["says"]) for s in value["sites"]], style)
    options = [(f"-O {o['name']}={o['default']}", o["help"]) for o in value["options"]]
    lines += _section("Options (with their defaults)", options, style)
    rows = [(one["name"], one["help"]) for one in value["environment"]]
    lines += _section("Environment of the server", rows, style)
    return "\n".join(lines)


def _section(title: str, rows: Sequence[tuple[str, str]], style: Style) -> list[str]:
    if not rows:
        return []
    lines = ["", style(title, "bold")]
    for name, text in rows:
        lines.append(f"  {name}")
        lines += [f"      {line}" for line in wrap(text, 72)]
    return lines


def wrap(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


# -- status -----------------------------------------------------------------------


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


# -- apply, reapply, revert ----------------------------------------------------------


def change_json(
    path: str, before: bytes | None, after: bytes | None, merged: bool, state: FileState
) -> Json:
    added, removed = added_and_removed(before, after)
    return {
        "path": path,
        "change": "added" if before is None else "removed" if after is None
        else "changed" if before != after else "unchanged",
        "lines_added": added,
        "lines_removed": removed,
        "was": state.value,
        "merged_with_your_edits": merged,
    }  # fmt: skip


def outcome_json(outcome: Outcome) -> Json:
    return {
        "recipe": outcome.recipe,
        "path": outcome.path,
        "status": outcome.status.value,
        "sites": [
            {
                "name": site.name,
                "status": site.status.value,
                "line": site.line,
                "detail": site.detail,
            }
            for site in outcome.sites
        ],
    }


def change_text(value: Json, style: Style) -> str:
    """Text of apply, reapply and revert: what changed and what next."""
    target = value["target"]
    first, *more = wrap(value["headline"], 78)
    lines = [style(first, "bold"), *(style(f"  {line}", "bold") for line in more)]
    lines.append(style(f"  SGLang {target['sglang']} at {target['package']}", "dim"))
    changed = [one for one in value["files"] if one["change"] != "unchanged"]
    tap = [one for one in changed if one["path"].startswith(TAP_FOLDER + "/")]
    for one in changed:
        if one in tap:
            continue
        count = f"+{one['lines_added']} -{one['lines_removed']}"
        note = "  merged with your edits" if one["merged_with_your_edits"] else ""
        lines.append(f"  {one['change']:<8} {one['path']:<36} {count}{note}")
    if tap:
        kinds = sorted({one["change"] for one in tap})
        lines.append(f"  {'/'.join(kinds):<8} {TAP_FOLDER}/ ({len(tap)} files)")
    several = len({one["recipe"] for one in value["outcomes"]}) > 1
    for outcome in value["outcomes"]:
        whose = f"{outcome['recipe']}: " if several else ""
        for site in outcome["sites"]:
            if site["status"] == Status.NOT_NEEDED.value:
                text = f"{site['name']} not needed: {site['detail']}"
                if site["name"] == LEFT_ALONE:
                    place = f"{outcome['path']}:{site['line']}"
                    text = f"{LEFT_ALONE}, {place}: {site['detail']}"
                lines += _indent(whose + text, style)
    for note in value["notes"]:
        lines += _indent(note, style)
    if value.get("commit"):
        lines.append(f"  committed as {value['commit'][:12]}")
    for text in value["next"]:
        first, *more = wrap(text, 72)
        lines += [f"{style('next:', 'bold')} {first}", *(f"      {m}" for m in more)]
    return "\n".join(lines)


def _indent(text: str, style: Style) -> list[str]:
    first, *more = wrap(text, 74) or [""]
    return [style(f"  {first}", "dim"), *(style(f"    {m}", "dim") for m in more)]


# -- diff and log ---------------------------------------------------------------------


def diff_text(diff: bytes, style: Style) -> str:
    text = diff.decode("utf-8", "replace")
    if not style.colour:
        return text
    return "".join(_diff_line(line, style) for line in text.splitlines(keepends=True))


def _diff_line(line: str, style: Style) -> str:
    body = line.rstrip("\r\n")
    end = line[len(body) :]
    if body.startswith(("diff ", "--- ", "+++ ", "new file", "deleted file")):
        return style(body, "bold") + end
    colour = {"+": "green", "-": "red", "@": "cyan"}.get(body[:1], "")
    return style(body, colour) + end


def log_text(entries: Sequence[Json], style: Style) -> str:
    lines = []
    for one in entries:
        lines.append(
            f"{style(one['commit'][:12], 'yellow')} {one['when']}  {one['what']}"
        )
        shown = [f"{k}: {v}" for k, v in one["trailers"] if k != "Patchkit"]
        lines += [style(f"    {line}", "dim") for line in shown]
    return "\n".join(lines)


def when(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(seconds))
