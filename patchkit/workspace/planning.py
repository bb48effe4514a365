"""Plans: everything that will be written, complete before the first write."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from patchkit.compose import Composition
from patchkit.errors import Conflict, Refused
from patchkit.journal.merge import MergeConflict, merge
from patchkit.journal.state import Contents, FileRecord, State, digest
from patchkit.model import TAP_FOLDER, Applied, FileState, Outcome
from patchkit.source import mark_names, marked_lines, strip_marks
from patchkit.workspace.standing import TAP_NAME, Standing


@dataclass(frozen=True)
class FileChange:
    """One file of a plan: what it is now, and what it will be (``None``: no file)."""

    path: str
    state: FileState
    before: bytes | None
    after: bytes | None
    original: bytes | None
    patched: bytes | None
    recipes: tuple[str, ...] = ()
    merged: bool = False

    @property
    def changes(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Plan:
    """What an apply or a revert will do. ``previous`` is the recorded state."""

    action: str
    previous: State
    recipes: tuple[Applied, ...]
    files: tuple[FileChange, ...]
    outcomes: tuple[Outcome, ...] = ()
    epoch: int = 0
    version: str = "unknown"
    tap: str = ""
    names: tuple[str, ...] = ()

    @property
    def writes(self) -> dict[str, bytes | None]:
        return {one.path: one.after for one in self.files if one.changes}

    @property
    def records(self) -> bool:
        """Whether the journal has something new to say, even if no file changes."""
        old, new = self.previous, self.state()
        return (old.recipes, old.tap) != (new.recipes, new.tap) or any(
            old.files.get(path) != one for path, one in new.files.items() if one.recipes
        )

    @property
    def changes(self) -> bool:
        return bool(self.writes) or self.records

    def state(self) -> State:
        sites = tuple(
            {
                "recipe": one.recipe,
                "path": one.path,
                "status": one.status.value,
                "sites": [
                    {"name": s.name, "status": s.status.value, "detail": s.detail}
                    for s in one.sites
                ],
            }
            for one in self.outcomes
        )
        return State(
            recipes=self.recipes,
            files={
                one.path: FileRecord(
                    digest(one.original),
                    digest(one.patched),
                    digest(one.after),
                    one.recipes,
                )
                for one in self.files
            },
            sites=sites,
            version=self.version,
            epoch=self.epoch,
            tap=self.tap,
            absent=tuple(one.path for one in self.files if one.before is None),
        )

    def contents(self) -> Contents:
        def kind(name: str) -> dict[str, bytes]:
            pairs = ((one.path, getattr(one, name)) for one in self.files)
            return {path: data for path, data in pairs if data is not None}

        before = {}
        for one in self.files:
            record = self.previous.files.get(one.path)
            known = record.written if record else digest(one.original)
            if one.before is not None and digest(one.before) != known:
                before[one.path] = one.before
        return Contents(kind("original"), kind("patched"), kind("after"), before)


def plan_files(
    standings: Mapping[str, Standing],
    previous: State,
    recorded: Contents,
    originals: Mapping[str, bytes | None],
    composition: Composition,
    *,
    applying: bool,
) -> tuple[FileChange, ...]:
    """Merge the composed tree with the user's edits.

    Raises Conflict naming every file that overlaps, Refused for a file that the
    user's edits have left unparseable.
    """
    changes: list[FileChange] = []
    conflicts: list[str] = []
    for path, standing in standings.items():
        original = originals.get(path)
        composed = composition.files.get(path, original)
        try:
            after = _after(
                path, standing, previous, recorded, original, composed, applying
            )
        except MergeConflict as problem:
            conflicts += [f"{path}: {line}" for line in problem.text.split("\n")]
            continue
        merged = after != composed
        if merged and after is not None:
            _check_merged(path, standing.data, after, applying, composition)
        owners = composition.owners.get(path, ())
        changes.append(
            FileChange(
                path,
                standing.state,
                standing.data,
                after,
                original,
                composed,
                owners,
                merged,
            )
        )
    if conflicts:
        paths = sorted({one.split(":")[0] for one in conflicts})
        raise Conflict(
            f"{', '.join(paths)}: your edits overlap what patchkit would change",
            hint="patchkit diff --drift shows your edits; move them away from"
            " patchkit's lines, or undo them: patchkit diff --drift | patch -R -p1",
            details=tuple(conflicts),
        )
    return tuple(changes)


def _after(
    path: str,
    standing: Standing,
    previous: State,
    recorded: Contents,
    original: bytes | None,
    composed: bytes | None,
    applying: bool,
) -> bytes | None:
    now = standing.data
    record = previous.files.get(path)
    if record is None or not record.recipes:
        return composed
    base = recorded.patched.get(path)
    if now is None or base is None or now in (base, original, composed):
        return composed
    placed, left = Counter(marked_lines(base)), Counter(marked_lines(now))
    inserted = original is not None and strip_marks(base) == recorded.original.get(path)
    if standing.fresh and left - placed:
        # a new original is taken without our lines, so an edit of one would be lost
        lines = b"".join(left - placed).decode("utf-8", "replace")
        raise MergeConflict(f"lines of patchkit's, edited:\n{lines.rstrip()}")
    if standing.fresh:
        return composed
    theirs = b"" if composed is None else composed
    gone = placed - left and not left - placed
    if applying and inserted and original is not None and gone:
        # lines of ours are gone: they are put back, and the user's edits kept
        return merge(original, strip_marks(now), theirs)
    try:
        after = merge(base, now, theirs)
    except MergeConflict:
        # a line of ours that they took out is no loss if all of ours go
        if left - placed or (left != placed and composed != original):
            raise
        # none of our lines is edited, so the user's edits are the rest: an edit that
        # touches one of our lines is no conflict for a recipe that only inserts
        if not inserted or original is None:
            raise
        after = merge(original, strip_marks(now), theirs)
    return None if composed is None and not after else after


def _check_merged(
    path: str,
    now: bytes | None,
    after: bytes,
    applying: bool,
    composition: Composition,
) -> None:
    """Raise Refused if the user's edits would leave something that can't run."""
    problem = _syntax_problem(after)
    if problem and (applying or not _syntax_problem(now or b"")):
        raise Refused(
            f"{path}: with your edits the file is not valid Python ({problem})",
            hint="mend it, then try again",
        )
    tap = path.startswith(TAP_FOLDER + "/")
    calls_tap = TAP_NAME in after and not any(
        one.startswith(TAP_FOLDER + "/") for one in composition.files
    )
    marked = set(mark_names(after)) - set(composition.owners.get(path, ()))
    if not tap and (calls_tap or marked):
        raise Refused(
            f"{path}: lines of patchkit's would be left behind, edited or copied by"
            " you, that call what is taken away",
            hint="patchkit diff --drift shows them; take them out, then try again",
        )


def _syntax_problem(data: bytes) -> str:
    try:
        ast.parse(data)
    except (SyntaxError, ValueError) as problem:
        line = getattr(problem, "lineno", None)
        return f"line {line}" if line else str(problem)
    return ""


def take_originals(
    standings: Mapping[str, Standing], previous: State, recorded: Contents
) -> tuple[dict[str, bytes | None], bool]:
    """The originals to compose from, and whether a new epoch begins.

    Raises Refused for marked files that can't be proven.
    """
    originals: dict[str, bytes | None] = {}
    unproven: list[str] = []
    new_epoch = False
    for path, standing in standings.items():
        record = previous.files.get(path)
        if standing.fresh:
            originals[path] = standing.original
            new_epoch = True
        elif record is not None and record.recipes:
            originals[path] = recorded.original.get(path)
        elif standing.state is FileState.FOREIGN:
            unproven.append(path)
        elif standing.state is FileState.DRIFTED:
            raise Refused(
                f"{path} exists already and is not from patchkit",
                hint="move it away: the tap is put there",
            )
        else:
            originals[path] = standing.data
            new_epoch = new_epoch or not previous.recipes
    if unproven:
        raise Refused(
            f"{', '.join(unproven)}: patchkit's marks, but no journal, and what is left"
            " without them is neither the wheel's own file nor a committed version",
            hint="restore the original files (reinstall SGLang, or git checkout), then"
            " apply again",
        )
    return originals, new_epoch
