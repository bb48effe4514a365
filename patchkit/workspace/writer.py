"""Carries a Plan out: the journal first, then the files, then the user's commit."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from patchkit.errors import Refused, UsageError
from patchkit.journal import checkout as git_checkout
from patchkit.journal.plumbing import trailer_block
from patchkit.workspace import files
from patchkit.workspace.planning import Plan
from patchkit.workspace.tree import Workspace


def execute(
    workspace: Workspace, plan: Plan, *, commit: bool = False
) -> tuple[list[str], str | None]:
    """Journal first, then the files; notes, and the id of the user's commit.

    Call it inside ``writing()``. Raises Refused with nothing written, or, with
    ``commit``, CannotRun when git would not commit what was written.
    """
    if commit:
        _check_commit(workspace, plan)
    notes: list[str] = []
    if plan.changes:
        problems = files.check_writable(workspace.target.package, plan.writes)
        if problems:
            raise Refused(
                "the target is read-only; nothing was written",
                hint="make these writable (chmod u+w), or patch a copy",
                details=tuple(problems),
            )
        notes = _write(workspace, plan)
    if not commit:
        return notes, None
    assert workspace.checkout is not None
    inside = [f"{workspace.target.prefix}/{one.path}" for one in plan.files]
    inside += [f"{workspace.target.prefix}/{path}" for path in workspace.owned_paths()]
    message = f"{_subject(plan)}\n\n{_trailers(plan)}"
    made = git_checkout.commit(workspace.checkout, sorted(set(inside)), message)
    return notes, made


def _write(workspace: Workspace, plan: Plan) -> list[str]:
    entry = workspace.store.record(
        plan.state(),
        plan.contents(),
        workspace.recorded.commit,
        _subject(plan),
        _trailers(plan),
    )
    try:
        before = {one.path: one.before for one in plan.files}
        notes = files.write_all(workspace.target.package, plan.writes, before)
    except Refused:
        # if even that fails, recovery sees that nothing was written, and drops it
        with suppress(Refused):
            workspace.store.drop_pending()
        raise
    except OSError as problem:
        raise Refused(
            f"writing stopped half-way: {problem}",
            hint="patchkit status finishes or undoes it",
        ) from None
    workspace.store.settle(entry)
    workspace.recorded = replace(plan.state(), commit=entry)
    return notes


def _check_commit(workspace: Workspace, plan: Plan) -> None:
    if workspace.checkout is None:
        raise UsageError(
            f"--commit: no git checkout tracks {workspace.target.package}",
            hint="leave --commit away; patchkit log shows patchkit's own journal",
        )
    git_checkout.refuse_commit_in_progress(workspace.checkout)
    stand = _stand(workspace, plan)
    prefix = workspace.target.prefix
    staged = git_checkout.staged(workspace.checkout, [f"{prefix}/{p}" for p in stand])
    edited = []
    for path, (now, original, merged) in stand.items():
        # a git that was killed after it moved HEAD leaves the original in the index,
        # or nothing but the intent to add a new file
        ours = (now, original, b"" if original is None else now)
        if staged.get(f"{prefix}/{path}", now) not in ours:
            edited.append(path)
            continue
        if now is None:
            continue
        head = git_checkout.head_blob(workspace.checkout, f"{prefix}/{path}")
        if head == now or (head is None and original is None):
            continue
        if merged or head != original:
            edited.append(path)
    if edited:
        raise Refused(
            f"--commit: {', '.join(edited)} has uncommitted edits of yours, which"
            " would be committed with the patch",
            hint="commit or stash them first",
        )


def _stand(
    workspace: Workspace, plan: Plan
) -> dict[str, tuple[bytes | None, bytes | None, bool]]:
    """Each file that would be committed: as it is now, its original, and whether the
    patched tree and edits of the user's are merged in it."""
    found = {}
    recorded = workspace.contents()
    for path in workspace.owned_paths():
        now = files.read(workspace.target.package, path)
        merged = now not in (recorded.patched.get(path), recorded.original.get(path))
        found[path] = (now, recorded.original.get(path), merged)
    for one in plan.files:
        found[one.path] = (one.before, one.original, one.merged)
    return found


def _subject(plan: Plan) -> str:
    """One line of ``patchkit log``: what, with which options, on which SGLang."""
    options = {one.name: one.options for one in plan.recipes}
    names = [
        " ".join([name, *(f"{k}={v}" for k, v in options.get(name, {}).items())])
        for name in plan.names
    ]
    what = f"{plan.action.capitalize()} {', '.join(names) or 'everything'}"
    count = len(plan.writes)
    kept = ", keeping the user's edits" if any(one.merged for one in plan.files) else ""
    return f"{what} on SGLang {plan.version} ({count} files{kept})"


def _trailers(plan: Plan) -> str:
    named = {one.name: one for one in (*plan.previous.recipes, *plan.recipes)}
    rows = [
        (
            name,
            named[name].version,
            " ".join(f"{k}={v}" for k, v in named[name].options.items()),
        )
        for name in plan.names
        if name in named
    ]
    return trailer_block(rows)
