"""apply, reapply and revert."""

from __future__ import annotations

from typing import Any

from patchkit.model import LEFT_ALONE, TAP_FOLDER, FileState, Outcome, Status, Target
from patchkit.report.style import Style, wrap
from patchkit.textdiff import added_and_removed

Json = dict[str, Any]


def target_json(target: Target) -> Json:
    return {
        "package": str(target.package),
        "layout": target.layout,
        "sglang": target.version,
        "journal": str(target.journal),
    }


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
