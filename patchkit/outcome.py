"""What a plan, or the applied set, amounts to: for the command line to show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patchkit.errors import UsageError
from patchkit.model import FileState, Target
from patchkit.report.change import Json, change_json, outcome_json, target_json
from patchkit.source import strip_marks
from patchkit.textdiff import unified
from patchkit.workspace.planning import Plan
from patchkit.workspace.tree import Workspace

_NOTES = {
    FileState.OVERWRITTEN: "the original had been put back; patched again",
    FileState.REPLACED: "another SGLang is here than the journal knew; a new epoch"
    " begins, the old entries stay readable",
    FileState.MISSING: "was missing; written again",
    FileState.FOREIGN: "marks without a journal; the original was proven and adopted",
}


def describe(
    workspace: Workspace,
    plan: Plan,
    imported: Path | None,
    dry: bool,
    notes: list[str],
    commit: str | None,
) -> Json:
    """The answer of apply, reapply and revert."""
    changes = bool(plan.writes)
    names = ", ".join(plan.names) or ("everything" if changes else "")
    if not names:
        done = "nothing is applied"
    elif not plan.changes and commit:
        done = "already done; committed"
    elif not plan.changes:
        done = "nothing to do"
        if plan.action == "revert" and plan.names:
            done += ": not applied"
        elif plan.names and not {one.name for one in plan.recipes} & set(plan.names):
            done += ": this tree needs none of it"
    elif dry:
        done = "would change" if changes else "would only update the journal"
    else:
        done = "done" if changes else "only the journal was updated"
    said = list(notes)
    if imported not in (None, workspace.target.package) and plan.action != "revert":
        said.append(
            f"warning: python imports another copy, {imported} (--python names the"
            " interpreter that runs the server)"
        )
    said += _changed_recipes(plan)
    kept = [one.path for one in plan.files if one.merged and one.recipes]
    if kept and plan.records:
        said.append(f"your edits in {', '.join(kept)} are kept")
    said += _not_looked_at(workspace, plan)
    for state in {one.state for one in plan.files if one.changes or one.recipes}:
        if state in _NOTES and plan.action != "revert":
            paths = [one.path for one in plan.files if one.state is state]
            said.append(f"{', '.join(paths)}: {_NOTES[state]}")
    return {
        "action": plan.action,
        "target": target_json(workspace.target),
        "headline": f"{plan.action} {names}".strip() + f": {done}",
        "changed": plan.changes,
        "written": changes and not dry,
        "recipes": [one.name for one in plan.recipes],
        "files": [
            change_json(one.path, one.before, one.after, one.merged, one.state)
            for one in plan.files
        ],
        "outcomes": [
            outcome_json(one) for one in plan.outcomes if one.recipe in plan.names
        ],
        "notes": said,
        "commit": commit,
        "next": [] if dry else _next_steps(workspace, plan),
    }


def _changed_recipes(plan: Plan) -> list[str]:
    """What became of recipes that were applied before: other options, renewed."""
    said = []
    before = {one.name: one for one in plan.previous.recipes}
    for now in plan.recipes:
        was = before.get(now.name)
        if was is None:
            continue
        if dict(was.options) != dict(now.options):
            old, new = (
                " ".join(f"{k}={v}" for k, v in one.options.items()) or "the defaults"
                for one in (was, now)
            )
            said.append(f"{now.name}: options were {old}, are {new} now")
        if now.digest != was.digest and now.name not in plan.names:
            said.append(f"{now.name}: renewed, since its recipe has changed")
    left = {one.name for one in plan.recipes}
    for name in sorted(before.keys() - left - set(plan.names)):
        said.append(f"{name}: taken out too, since this tree does not need it any more")
    return said


def _not_looked_at(workspace: Workspace, plan: Plan) -> list[str]:
    """A recipe that changes lines which it finds does not find them in edits that came
    on top of a patched file."""
    edited = {one.path for one in plan.files if one.merged}
    said = []
    for name in plan.names if plan.action == "apply" else ():
        info = workspace.registry.find(name)
        if info is None or info.inserts_only:
            continue
        looked = {one.path for one in plan.outcomes if one.recipe == name}
        if edited & looked:
            paths = ", ".join(sorted(edited & looked))
            said.append(
                f"{name} looked at {paths} as it was before patchkit first changed it,"
                " not at your edits since; patchkit revert, then apply again, and it"
                " looks at all of it"
            )
    return said


def _next_steps(workspace: Workspace, plan: Plan) -> list[str]:
    steps: list[str] = []
    if plan.action == "revert":
        if plan.writes:
            steps.append("restart the server to be rid of it")
    elif plan.writes:
        named = {one.name for one in plan.recipes}
        for name in plan.names:
            info = workspace.registry.find(name)
            if info is not None and info.next_step and name in named:
                whose = f"{name}: " if len(named & set(plan.names)) > 1 else ""
                steps.append(whose + info.next_step)
    return steps


def _in_tree(target: Target, path: str) -> str:
    return f"{target.prefix}/{path}"


def plan_diff(target: Target, plan: Plan) -> bytes:
    return b"".join(
        unified(one.before, one.after, _in_tree(target, one.path))
        for one in sorted(plan.files, key=lambda one: one.path)
    )


def applied_diff(workspace: Workspace, recipe: str | None) -> bytes:
    """originals -> patched tree; with ``recipe``, only its part of that."""
    workspace.refuse_foreign()
    applied = {one.name: one for one in workspace.recorded.recipes}
    if recipe is not None:
        recipe = (
            workspace.registry.get(recipe).name if recipe not in applied else recipe
        )
        if recipe not in applied:
            return b""
    recorded = workspace.contents()
    before: Mapping[str, bytes | None] = recorded.original
    if recipe is not None:
        if not applied[recipe].inserts_only:
            raise UsageError(
                f"diff {recipe}: this recipe changes upstream lines, so its part"
                " can't be told from its neighbours'",
                hint="patchkit diff shows all that is applied",
            )
        owned = {
            path: data
            for path, data in recorded.patched.items()
            if recipe in workspace.recorded.files[path].recipes
        }
        before = {
            path: None if path not in recorded.original else strip_marks(data, recipe)
            for path, data in owned.items()
        }
        after: Mapping[str, Any] = owned
    else:
        after = recorded.patched
    paths = sorted({*before, *after})
    return b"".join(
        unified(before.get(p), after.get(p), _in_tree(workspace.target, p))
        for p in paths
    )


def drift_diff(workspace: Workspace) -> bytes:
    """patched tree -> the files as they are now: the user's own edits."""
    patched = workspace.contents().patched
    found = b""
    for path, one in sorted(workspace.standings(workspace.owned_paths()).items()):
        found += unified(patched.get(path), one.data, _in_tree(workspace.target, path))
    return found
