"""One target, for one command: find it, lock it, look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from patchkit.errors import Refused
from patchkit.journal import checkout as git_checkout
from patchkit.journal.plumbing import require_git
from patchkit.journal.state import Contents, State
from patchkit.journal.store import Store
from patchkit.model import TAP_FOLDER, Target
from patchkit.registry import Registry
from patchkit.source import mark_names
from patchkit.target import read_version
from patchkit.workspace import files, lock
from patchkit.workspace.recovery import recover
from patchkit.workspace.standing import TAP_HEADER, Prover, Standing, stand

LANDMARK = "srt/models/deepseek_v2.py"
EMPTY = Contents({}, {}, {})


def open_target(package: Path) -> tuple[Target, git_checkout.Checkout | None]:
    """What the tree at ``package`` is, and the checkout that tracks it, if one does."""
    checkout = git_checkout.find_checkout(package, LANDMARK)
    beside = package.parent / ".patchkit"
    if checkout is None:
        layout = (
            "site-packages"
            if package.parent.name in ("site-packages", "dist-packages")
            else "tree"
        )
        root, journal = package.parent, beside
    else:
        layout, root = "checkout", checkout.top
        journal = checkout.git_dir / "patchkit"
        if not journal.exists() and Store(beside).exists():
            journal = beside  # patched first, made a checkout later
    version = read_version(package)
    return Target(package, root, layout, version, journal), checkout


class Workspace:
    """One target, for one command."""

    def __init__(
        self,
        package: Path,
        registry: Registry,
        say: Callable[[str], None] = lambda text: None,
    ):
        self.target, self.checkout = open_target(package)
        self.registry = registry
        self.say = say
        self.store = Store(self.target.journal)
        self.prover = Prover(self.target, self.checkout)
        self.recorded = State()
        self.pending: State | None = None

    # -- opening --------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock; first finish or undo what a kill interrupted."""
        require_git()
        with lock.held(self.target.journal):
            self.store.clean()
            self._read()
            self._recover()
            yield

    @contextmanager
    def reading(self, *, dry: bool = False) -> Iterator[None]:
        """Look without the lock. After a kill the tree is put right first, unless
        ``dry``: then that is refused, since nothing may be written."""
        self._read()
        if self.pending is None:
            yield
        elif dry:
            raise Refused(
                "a patchkit was killed while it wrote this tree, or is still at work",
                hint="patchkit status finishes or undoes that; then try again",
            )
        else:
            with self.writing():
                yield

    def _read(self) -> None:
        self.recorded, self.pending = self.store.read()

    def _recover(self) -> None:
        if self.pending is None:
            return
        how = recover(self.target.package, self.store, self.recorded, self.pending)
        self.say(f"a patchkit was killed while it wrote this tree; that is {how} now")
        self._read()

    # -- looking --------------------------------------------------------------------

    def standings(self, paths: Sequence[str]) -> dict[str, Standing]:
        other = self.recorded.version != self.target.version
        changing = {one.name for one in self.recorded.recipes if not one.inserts_only}
        found = {}
        for path in paths:
            record = self.recorded.files.get(path)
            found[path] = stand(
                path,
                files.read(self.target.package, path),
                record,
                self.prover,
                other,
                record is None or changing.isdisjoint(record.recipes),
            )
        return found

    def owned_paths(self) -> list[str]:
        """Files that recorded recipes changed."""
        return [path for path, one in self.recorded.files.items() if one.recipes]

    def contents(self) -> Contents:
        if not self.recorded.files:
            return EMPTY
        return self.store.contents(self.recorded)

    def refuse_foreign(self) -> None:
        """Raise Refused for a tree with marks of which the journal knows nothing."""
        if not self.recorded.recipes and self.foreign_marks():
            raise Refused(
                "this tree carries patchkit's marks, but has no journal of them",
                hint="patchkit apply adopts them, and patchkit revert removes them,"
                " if the original files can be proven; patchkit status says more",
            )

    def foreign_marks(self) -> dict[str, tuple[str, ...]]:
        """Marked files of a tree without a journal, and the recipes in their marks."""
        package = self.target.package
        found: dict[str, tuple[str, ...]] = {}
        for path in sorted({p for info in self.registry.near() for p in info.files}):
            data = files.read(package, path)
            names = mark_names(data or b"")
            if names:
                found[path] = names
        for tap in sorted((package / TAP_FOLDER).glob("*.py")):
            path = f"{TAP_FOLDER}/{tap.name}"
            if (files.read(package, path) or b"").startswith(TAP_HEADER):
                found[path] = ("tap",)
        return found
