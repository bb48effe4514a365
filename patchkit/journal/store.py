"""The journal's own repository: one commit per apply or revert.

A commit's tree holds ``state.json`` (the set of recipes, the files and their hashes),
``original/`` (the files as they were found), ``patched/`` (what the recipes make of
them), ``written/`` where edits of the user's were merged in, and ``before/`` where a
file had drifted. ``refs/heads/main`` is what the tree is known to be at;
``refs/patchkit/pending`` is an entry whose files are being written, and is all that a
kill leaves behind.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from patchkit.errors import JournalError, PatchkitError, Refused
from patchkit.journal.plumbing import EMAIL, NAME, GitFailed, git, repository
from patchkit.journal.state import Contents, Entry, State, digest

MAIN = "refs/heads/main"
PENDING = "refs/patchkit/pending"
REPOSITORY = "journal.git"


class Store:
    """The journal in ``folder`` (which also holds the lock)."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = folder / REPOSITORY

    def exists(self) -> bool:
        try:
            return stat.S_ISDIR(os.stat(self.path).st_mode)
        except PermissionError:
            raise JournalError(
                f"you may not look into {self.folder}, where the journal is",
                hint="run patchkit as the user who owns the tree",
            ) from None
        except OSError:
            return False

    def read(self) -> tuple[State, State | None]:
        """The recorded state, and the one being written if a kill interrupted it.

        Raises JournalError if the journal is damaged or a newer patchkit wrote it.
        """
        if not self.exists():
            return State(), None
        main, pending = self._objects(
            [f"{MAIN}:state.json", f"{PENDING}:state.json"], MAIN, PENDING
        )
        if main is None and pending is None and self._has_main():
            raise self._damaged("its last entry has no state")
        recorded = State() if main is None else self._state(*main)
        return recorded, None if pending is None else self._state(*pending)

    def _state(self, data: bytes, commit: str) -> State:
        try:
            return State.from_json(data, commit)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise self._damaged(f"state.json: {problem!r}") from None

    def _has_main(self) -> bool:
        loose = (self.path / MAIN).exists()
        packed = self.path / "packed-refs"
        return loose or (packed.exists() and MAIN in packed.read_text("utf-8"))

    def _objects(self, names: list[str], *refs: str) -> list[tuple[bytes, str] | None]:
        """Contents of the named objects with the commit of each ref, in one process."""
        asked = [word for pair in zip(refs, names) for word in pair]
        found = self._batch(asked)
        result: list[tuple[bytes, str] | None] = []
        for position in range(0, len(found), 2):
            commit, data = found[position], found[position + 1]
            if commit is None:
                result.append(None)
            elif data is None:
                raise self._damaged("an entry has no state.json")
            else:
                result.append((data[1], commit[0]))
        return result

    def _batch(self, names: list[str]) -> list[tuple[str, bytes] | None]:
        """(object id, contents) for each name; ``None`` for what is not there."""
        if not names:
            return []
        try:
            output = git(
                ["cat-file", "--batch"],
                git_dir=self.path,
                stdin="".join(f"{name}\n" for name in names).encode(),
            )
        except GitFailed as problem:
            raise self._damaged(problem.message) from None
        found: list[tuple[str, bytes] | None] = []
        at = 0
        for _ in names:
            end = output.index(b"\n", at)
            words = output[at:end].split()
            at = end + 1
            if len(words) != 3:
                found.append(None)
                continue
            size = int(words[2])
            found.append((words[0].decode(), output[at : at + size]))
            at += size + 1
        return found

    def contents(self, state: State) -> Contents:
        """The bytes that ``state`` records, each checked against its hash.

        Raises JournalError for what is missing or does not fit.
        """
        wanted: list[tuple[str, str, str | None]] = []
        for path, one in state.files.items():
            wanted.append(("original", path, one.original))
            wanted.append(("patched", path, one.patched))
            if one.written != one.patched:
                wanted.append(("written", path, one.written))
        wanted = [one for one in wanted if one[2] is not None]
        names = [f"{state.commit}:{kind}/{path}" for kind, path, _ in wanted]
        kinds: dict[str, dict[str, bytes]] = {
            "original": {},
            "patched": {},
            "written": {},
        }
        for (kind, path, expected), found in zip(wanted, self._batch(names)):
            if found is None or digest(found[1]) != expected:
                raise self._damaged(
                    f"{kind}/{path} is missing or does not fit its hash"
                )
            kinds[kind][path] = found[1]
        for path, one in state.files.items():
            if one.written is not None and path not in kinds["written"]:
                kinds["written"][path] = kinds["patched"][path]
        return Contents(kinds["original"], kinds["patched"], kinds["written"])

    def before(self, state: State, paths: list[str]) -> dict[str, bytes]:
        """The drifted files that an entry recorded before it was written."""
        found = self._batch([f"{state.commit}:before/{path}" for path in paths])
        return {path: one[1] for path, one in zip(paths, found) if one is not None}

    def _damaged(self, why: str) -> JournalError:
        return JournalError(
            f"the journal in {self.path} is damaged: {why}",
            hint="nothing was touched. `git fsck` there says more; to go on without"
            " it, move that folder away: patchkit then proves marked files against"
            " the wheel or the checkout before it reverts them",
        )

    # -- writing --------------------------------------------------------------------

    def create(self) -> None:
        """Make the repository, built aside and renamed into place."""
        if self.exists():
            return
        aside = Path(tempfile.mkdtemp(prefix="new-", dir=self.folder))
        try:
            git(["init", "--quiet", "--bare", "--template=", "-b", "main", aside])
            with open(aside / "config", "a") as config:
                # a pack for each entry: loose, its twenty objects are synced one by one
                config.write("[fastimport]\n\tunpackLimit = 1\n")
            # mkdtemp's 0700 would hide a shared tree's journal from its other users
            os.chmod(aside, os.stat(self.folder).st_mode & 0o777)
            os.replace(aside, self.path)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise

    def record(
        self, state: State, contents: Contents, parent: str, subject: str, body: str
    ) -> str:
        """Write an entry and make it the pending one. Returns its commit id.

        Raises Refused if it can't be written (a full disk).
        """
        mode = b"100644"
        stream: list[bytes] = [b"feature done\nfeature get-mark\n"]
        message = f"{subject}\n\n{body}\n".encode()
        stream.append(b"commit " + PENDING.encode() + b"\nmark :1\n")
        stamp = _now()
        for role in ("author", "committer"):
            stream.append(f"{role} {NAME} <{EMAIL}> {stamp}\n".encode())
        stream.append(b"data %d\n%s\n" % (len(message), message))
        if parent:
            stream.append(f"from {parent}\n".encode())
        stream.append(b"deleteall\n")
        items = {"state.json": state.to_json()}
        for kind, files in contents.kinds().items():
            for path, data in files.items():
                if kind == "written" and contents.patched.get(path) == data:
                    continue
                items[f"{kind}/{path}"] = data
        for name, data in sorted(items.items()):
            stream.append(b"M %s inline %s\n" % (mode, _quoted(name)))
            stream.append(b"data %d\n%s\n" % (len(data), data))
        stream.append(b"\nget-mark :1\ndone\n")
        try:
            self.create()
            # --force: a pending entry that a kill left may be no ancestor of this one
            made = git(
                ["fast-import", "--quiet", "--done", "--force"],
                git_dir=self.path,
                stdin=b"".join(stream),
            )
            return made.decode().strip()
        except (GitFailed, OSError) as problem:
            with suppress(PatchkitError):
                self.drop_pending()
            raise _unwritable(f"{problem}; nothing was changed") from None

    def settle(self, commit: str) -> None:
        """The pending entry's files are all written: make it the recorded one.

        Raises Refused if the journal can't be written; the entry stays pending.
        """
        orders = f"update {MAIN} {commit}\ndelete {PENDING}\n"
        try:
            git(["update-ref", "--stdin"], git_dir=self.path, stdin=orders.encode())
        except GitFailed as problem:
            raise _unwritable(
                f"{problem}; the files are written, and the next patchkit command"
                " records that"
            ) from None
        self._hand_over()

    def _hand_over(self) -> None:
        """What root wrote in a tree of another user's belongs to that user."""
        if os.geteuid() == 0 and os.stat(self.folder).st_uid != 0:
            for one in self.path.rglob("*"):
                give_to_owner_of(self.folder, one)
            give_to_owner_of(self.folder, self.path)

    def drop_pending(self) -> None:
        """The pending entry was undone, or never begun. Raises Refused."""
        if not self.exists():
            return
        try:
            git(["update-ref", "-d", PENDING], git_dir=self.path)
        except GitFailed as problem:
            raise _unwritable(str(problem)) from None

    def clean(self) -> None:
        """Remove what a killed git left: a repository half built, locks in ours, packs
        it had not finished (a ``.keep`` would even stop the next entry).

        Called under the lock of the target, so none of it is in use.
        """
        for aside in self.folder.glob("new-*"):
            shutil.rmtree(aside, ignore_errors=True)
        stale = ("*.lock", "refs/**/*.lock", "fast_import_crash_*", "objects/*/tmp_*")
        for pattern in (*stale, "objects/pack/*.keep"):
            for one in self.path.glob(pattern):
                one.unlink(missing_ok=True)

    # -- reading the history ----------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All entries, newest first."""
        if not self.exists() or not self._has_main():
            return []
        from git.exc import GitError  # see plumbing.repository

        try:
            with repository(self.path) as repo:
                return [
                    Entry(
                        commit.hexsha,
                        commit.committed_date,
                        str(commit.summary),
                        tuple((str(k), str(v)) for k, v in commit.trailers_list),
                    )
                    for commit in repo.iter_commits(MAIN)
                ]
        except (GitError, ValueError) as problem:
            raise self._damaged(str(problem)) from None


def give_to_owner_of(folder: Path, new: Path | int) -> None:
    """Root's new files belong to whoever owns the folder."""
    if os.geteuid() == 0:
        owner = os.stat(folder)
        if isinstance(new, int):
            os.fchown(new, owner.st_uid, owner.st_gid)
        else:
            os.chown(new, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _unwritable(why: str) -> Refused:
    return Refused(
        f"the journal can't be written: {why}",
        hint="is the disk full? make room, then run patchkit status",
    )


def _quoted(name: str) -> bytes:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return b'"' + escaped.encode() + b'"'


def _now() -> str:
    return f"{int(time.time())} +0000"
