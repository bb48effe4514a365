"""After a kill: finish what the pending entry began, or undo it."""

from __future__ import annotations

from pathlib import Path

from patchkit.errors import Conflict, Refused
from patchkit.journal.merge import MergeConflict, merge
from patchkit.journal.state import Contents, State
from patchkit.journal.store import Store
from patchkit.workspace import files


def recover(package: Path, store: Store, recorded: State, pending: State) -> str:
    """Bring the tree to fully written or fully undone; says which.

    A file is at its bytes before, at its bytes after, or the user has edited it since
    the kill; then their edit is merged. Back if no file was written yet; else forwards
    if every file can be, else back. Raises Conflict if neither way is clean, Refused if
    the files can't be written; the entry stays pending then.
    """
    before, after = _before(store, recorded, pending), _after(store, pending)
    files.remove_leftovers(package, list(pending.files))
    now = {path: files.read(package, path) for path in pending.files}
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
        _write(package, changes, now)
        store.drop_pending()
        return "undone"
    if changes and now == before:
        store.drop_pending()
        return "undone"
    _write(package, changes, now)
    store.settle(pending.commit)
    return "finished"


def _write(
    package: Path,
    changes: dict[str, bytes | None],
    now: dict[str, bytes | None],
) -> None:
    try:
        files.write_all(package, changes, now)
    except OSError as problem:
        raise Refused(
            f"repairing what a kill left stopped half-way: {problem}",
            hint="patchkit status tries again",
        ) from None


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
        first, last = start[path], goal[path]
        if data is None:
            changes[path] = last
        elif first is not None and last is not None:
            merged = merge(first, data, last)
            if merged != data:
                changes[path] = merged
        elif last is None:
            raise MergeConflict(f"{path}: edited since, and to be removed")
        # else: made by the killed command and edited since, so it stays
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
        if path in pending.absent:
            found[path] = None
        elif path in drifted:
            found[path] = drifted[path]
        elif path in recorded.files:
            found[path] = last.written.get(path)
        else:
            found[path] = originals.get(path)
    return found
