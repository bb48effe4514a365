"""The trials: a kill at each point, a kill while that is being repaired, a full disk.

After each, the next command must succeed and leave a tree that is right to the byte.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from checks import Checks, Wrong, require
from harness import Done, differences, snapshot
from scenarios import PATCHED, Stage, package
from support import git

EDITED, SINCE = "srt/models/llama_eagle3.py", b"# since the kill\n"


@dataclass
class Row:
    """One line of the table."""

    scenario: str
    layout: str
    trial: str
    points: int = 0
    finished: int = 0
    undone: int = 0
    failures: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def points(start: int, every: int) -> Iterator[int]:
    number = start
    while True:
        yield number
        number += every


@dataclass
class Trial(Checks):
    every: int = 1
    start: int = 1

    def row(self, name: str) -> Row:
        return Row(self.stage.scenario.name, self.stage.layout, name)

    # -- a kill -----------------------------------------------------------------------

    def kill(self) -> tuple[Row, list[int]]:
        """Kill the command at each point; also those that left an entry pending."""
        row, pending = self.row("kill"), []
        for at in points(self.start, self.every):
            self.stage.box.restore("start")
            done = self.run(self.stage.scenario.command, at)
            if not done.killed:
                self._judge(row, at, done, self._survived, done)
                return row, pending
            row.points += 1
            if self._pending():
                pending.append(at)
            number = row.points
            self._judge(row, at, done, self._after_kill, row, number)
        raise AssertionError

    def repair(self, pending: list[int]) -> Row:
        """Kill the repair, too, at each of its own points."""
        row = self.row("kill the repair")
        # one in the midst of the files' renames, one with little left to be done
        chosen = (pending[len(pending) * 2 // 3], pending[-1]) if pending else ()
        for first in chosen:
            self.stage.box.restore("start")
            self.run(self.stage.scenario.command, first)
            self.stage.box.keep("killed")
            for at in points(self.start, self.every):
                self.stage.box.restore("killed")
                done = self.run("status", at)
                if not done.killed:
                    break
                row.points += 1
                self._judge(row, f"{first}, {at}", done, self._repaired, row)
        return row

    def _repaired(self, row: Row) -> None:
        self._no_torn_file()
        self._next(row, "status", "before after")
        self._end()

    def edit(self, pending: list[int]) -> Row:
        """The user edits a file after the kill, before anything is repaired."""
        row = self.row("kill, then edit")
        for at in pending[::3]:
            self.stage.box.restore("start")
            done = self.run(self.stage.scenario.command, at)
            row.points += 1
            self._judge(row, at, done, self._edited, row)
        return row

    def _edited(self, row: Row) -> None:
        stage = self.stage
        file = package(stage.box, stage.layout) / EDITED
        file.write_bytes(file.read_bytes() + SINCE)
        name = file.relative_to(stage.box.tree).as_posix()

        def with_edit(tree: dict[str, Any]) -> dict[str, Any]:
            mode, data = tree[name]
            return {**tree, name: (mode, data + SINCE)}

        edited = Trial(
            replace(
                stage,
                before=with_edit(stage.before),
                after=with_edit(stage.after),
                undone=with_edit(stage.undone),
            )
        )
        edited._next(row, "status", "before after")
        edited._end()

    def _judge(
        self, row: Row, at: object, done: Done, check: Callable[..., None], *given: Any
    ) -> None:
        try:
            check(*given)
        except Wrong as problem:
            row.failures.append(f"k={at} ({done.at or 'survived'}): {problem}")

    def _survived(self, done: Done) -> None:
        require(done.code == 0, f"undisturbed, it exits {done.code}: {done.talk}")
        self._expect("after")
        self._end()

    def _after_kill(self, row: Row, number: int) -> None:
        stage = self.stage
        self._no_torn_file()
        if stage.commits:
            self._commit_again(row, number)
            return
        choices = (
            ("status", "before after"),
            (stage.scenario.command, "after"),
            ("revert", "undone"),
            ("diff", "before after"),
        )
        command, wanted = choices[number % len(choices)]
        self._next(row, command, wanted)
        self._end(reverted=command == "revert")

    def _next(self, row: Row, command: str, wanted: str) -> None:
        """The next command, undisturbed, and what it makes of the tree."""
        was_pending, now = self._pending(), snapshot(self.stage.box.tree)
        done = self.run(command)
        # of a tree that is still foreign, diff says so instead
        foreign = command == "diff" and "but has no journal of them" in done.talk
        fine = done.code == (3 if foreign else 0)
        require(fine, f"then {command} exits {done.code}: {done.talk}")
        self._expect(wanted)
        if f"{command} ".startswith(("status ", "diff ")):
            now = snapshot(self.stage.box.tree)
        elif was_pending:
            said = "finished now" in done.talk or "undone now" in done.talk
            require(said, f"{command} does not say what it repaired: {done.talk}")
            now = self.stage.after if "finished now" in done.talk else self.stage.before
        else:
            named = {"before": self.stage.before, "after": self.stage.after}
            require(now in named.values(), "an entry was not pending, but the tree is"
                    f" between: {differences(now, self.stage.before)}")  # fmt: skip
        if now == self.stage.after:
            row.finished += 1
        else:
            row.undone += 1
        self._journal_is_sound()

    # -- a full disk ------------------------------------------------------------------

    def full(self) -> Row:
        """No space from the k-th change on, until the command needs none."""
        row = self.row("full disk")
        for at in points(self.start, self.every):
            self.stage.box.restore("start")
            done = self.run(self.stage.scenario.command, at, "full")
            if done.calls < at:
                self._judge(row, at, done, self._survived, done)
                return row
            row.points += 1
            number = row.points
            self._judge(row, at, done, self._after_full, row, number, done)
        raise AssertionError

    def _after_full(self, row: Row, number: int, done: Done) -> None:
        require("Traceback" not in done.talk and done.code != 70, f"a bug: {done.talk}")
        self._no_torn_file()
        if done.code == 0:
            # what could not be written did not matter (a message, a log of git's)
            self._expect("after")
        else:
            require(done.code in (3, 4), f"exit {done.code}: {done.talk}")
            require("error: " in done.talk, f"no clear error: {done.talk}")
            whole = snapshot(self.stage.box.tree) == self.stage.before
            told = whole or "half-way" in done.talk or "are written" in done.talk
            told = told or self.stage.commits
            require(told, f"the tree changed, but it says: {done.talk}")
        self._after_kill(row, number)

    # -- --commit ---------------------------------------------------------------------

    def _commit_again(self, row: Row, number: int) -> None:
        """git's own locks in the user's repository are the user's to remove."""
        stage, command = self.stage, self.stage.scenario.command
        top = stage.box.tree
        if number % 2:
            self._next(row, "status", "before after")
        locks = [
            one
            for one in (top / ".git").rglob("*.lock")
            # the last are git's scratch, in nobody's way
            if not _in(one, stage) and not one.name.startswith("next-index-")
        ]
        done = self.run(command)
        if locks:
            named = any(one.name in done.talk for one in locks)
            require(done.code == 3, f"with {locks} exits {done.code}: {done.talk}")
            require(named, f"does not name {locks}: {done.talk}")
            require(all(one.exists() for one in locks), "removed a lock of the user's")
            for one in locks:
                one.unlink()
            done = self.run(command)
        require(done.code == 0, f"then {command} exits {done.code}: {done.talk}")
        self._expect("after")
        if not number % 2:
            row.finished += 1
        self._journal_is_sound()
        prefix = package(stage.box, stage.layout).relative_to(top).as_posix()
        for path in PATCHED:
            name = f"{prefix}/{path}"
            done_git = subprocess.run(
                ["git", "-C", str(top), "show", f"HEAD:{name}"], capture_output=True
            )
            same = done_git.stdout == stage.after[name][1]
            require(same, f"HEAD has not the patched {path}")
        require(git(top, "rev-list", "--count", "HEAD").strip() == "2", "commits twice")
        state = git(top, "status", "--porcelain")
        require(state == f"MM {prefix}/srt/models/kimi_k25.py\n", f"status: {state}")
        self._end()


def _in(path: Path, stage: Stage) -> bool:
    return path.is_relative_to(stage.box.journal)
