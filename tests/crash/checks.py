"""What must hold after a kill, and after the command that follows it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness import Done, differences, snapshot
from scenarios import Stage

OURS = ".patchkit-tmp-"


class Wrong(Exception):
    """What a trial found."""


def require(fine: object, message: str) -> None:
    if not fine:
        raise Wrong(message)


@dataclass
class Checks:
    stage: Stage

    def run(self, command: str, at: int = 0, mode: str = "kill") -> Done:
        stage = self.stage
        return stage.box.run(*stage.words(command), at=at, mode=mode)

    def _expect(self, names: str) -> None:
        found = snapshot(self.stage.box.tree)
        if any(found == getattr(self.stage, name) for name in names.split()):
            return
        wrong = [
            f"{name}: {differences(found, getattr(self.stage, name))}"
            for name in names.split()
        ]
        raise Wrong("the tree is neither; it differs from " + "; from ".join(wrong))

    def _no_torn_file(self) -> None:
        """Straight after the kill each file is whole: as before, as after."""
        right = (self.stage.before, self.stage.after, self.stage.undone)
        now = snapshot(self.stage.box.tree)
        for name in {*now, *self.stage.before}:
            if OURS in name:
                continue
            fine = any(now.get(name) == one.get(name) for one in right)
            # an empty folder has no bytes of anybody's
            if not fine and not (name in now and now[name][1] is None):
                raise Wrong(f"{name} is torn or gone")

    def _journal_is_sound(self) -> None:
        repository = self.stage.box.journal / "journal.git"
        if repository.is_dir():
            done = subprocess.run(
                [
                    *("git", f"--git-dir={repository}", "fsck", "--full", "--strict"),
                    *("--no-dangling", "--no-progress"),
                ],
                capture_output=True,
                text=True,
            )
            said = [
                line
                for line in (done.stdout + done.stderr).splitlines()
                if not line.startswith("notice: ")  # of a branch yet to be born
            ]
            require(not done.returncode and not said, f"git fsck: {said}")
        if (self.stage.box.tree / ".git").is_dir() and not self.stage.commits:
            now = self.stage.user_git_dir()
            changed = differences(now, self.stage.git_dir)
            require(not changed, f"the user's own repository changed: {changed}")

    def _pending(self) -> bool:
        path = "journal.git/refs/patchkit/pending"
        return (self.stage.box.journal / path).exists()

    def _end(self, reverted: bool = False) -> None:
        """A revert gives the user's own bytes, and nothing of ours is left over."""
        if not reverted:
            done = self.run("revert")
            require(done.code == 0, f"the last revert exits {done.code}: {done.talk}")
            self._expect("undone")
        require(not self._pending(), "an entry is still pending")
        journal = self.stage.box.journal
        if not journal.exists():
            return
        require((journal / "journal.git").exists(), f"{journal.name} is left, empty")
        left = [
            one for one in os.listdir(journal) if one not in ("journal.git", "lock")
        ]
        for folder, _, names in os.walk(journal):
            # git's own names for what it has not finished
            marks = (".lock", ".keep")
            left += [
                str(Path(folder, name).relative_to(journal))
                for name in names
                if name.endswith(marks) or name.startswith(("tmp_", "fast_import_"))
            ]
        require(not left, f"left in the journal: {', '.join(left)}")
