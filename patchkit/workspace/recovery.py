"""After a kill: finish what the pending entry began, or undo it."""

from __future__ import annotations

from pathlib import Path

from patchkit.errors import Conflict
from patchkit.journal.merge import MergeConflict, merge
from patchkit.journal.state import Contents, State
from patchkit.journal.store import Store
from patchkit.workspace import files


def recover(package: Path, store: Store, recorded: State, pending: State) -> str:
    """Bring the tree to fully written or fully undone; says which.

    A file is at its bytes before, at its bytes after, or the user has edited it since
    the kill; then their edit is merged. Forwards if every file can be, else back.
    Raises Conflict if neither way is clean; nothing is written then.
    """
    before, after = _before(store, recorded, pending), _after(store, pending)
    now = {path: files.read(package, path) for path in pending.files}
    files.remove_leftovers(package, list(pending.files))
    try:
        changes = _toward(now, before, after)
    except MergeConflict as forwards:
        try:
            changes = _toward(now, after, before)
        except MergeConflict:
            raise Conflict(
                "a patchkit that was killed left this tree half written, and your"
                " edits since then overlap both what it was and what it would be",
                hint=f"undo your edits, then run patchkit again; `git -C {store.path}"
                f" show {pending.commit[:12]}:written/PATH` shows what it would be",
                details=tuple(forwards.text.split("\n")),
            ) from None
        files.write_all(package, changes)
        store.drop_pending()
        return "undone"
    files.write_all(package, changes)
    store.settle(pending.commit)
    return "finished"


def _toward(
    now: dict[str, bytes | None],
    start: dict[str, bytes | None],
    goal: dict[str, bytes | None],
) -> dict[str, bytes | None]:
    changes: dict[str, bytes | None] = {}
    for path, data in now.items():
        if data == goal[path]:
            continue
        if data == start[path]:
            changes[path] = goal[path]
            continue
        merged = merge(start[path] or b"", data or b"", goal[path] or b"")
        if merged != data:
            changes[path] = merged
    return changes


def _after(store: Store, pending: State) -> dict[str, bytes | None]:
    contents: Contents = store.contents(pending)
    return {path: contents.written.get(path) for path in pending.files}


def _before(store: Store, recorded: State, pending: State) -> dict[str, bytes | None]:
    drifted = store.before(pending, list(pending.files))
    last = store.contents(recorded)
    originals = store.contents(pending).original
    found: dict[str, bytes | None] = {}
    for path in pending.files:
        if path in drifted:
            found[path] = drifted[path]
        elif path in recorded.files:
            found[path] = last.written.get(path)
        else:
            found[path] = originals.get(path)
    return found
