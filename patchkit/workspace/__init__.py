"""The only package that writes into a target: plan, lock, write, status."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Callable, Iterator, Mapping, Sequence

from patchkit.compose import Composition, Member, canonical, compose
from patchkit.errors import Refused, UsageError
from patchkit.journal import checkout as git_checkout
from patchkit.journal.plumbing import trailer_block
from patchkit.journal.store import Contents, State, Store
from patchkit.model import (
    TAP_FOLDER,
    Applied,
    FileState,
    Outcome,
    RecipeInfo,
    Status,
    Target,
)
from patchkit.registry import Registry, load, tap_digest, tap_files
from patchkit.source import mark_names
from patchkit.target import read_version
from patchkit.workspace import files, lock
from patchkit.workspace.planning import Plan, plan_files, take_originals
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
    top = checkout.top if checkout else None
    version = read_version(package)
    return Target(package, root, layout, version, journal, top), checkout


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
                "a patchkit was killed while it wrote this tree",
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
        return {
            path: stand(
                path,
                files.read(self.target.package, path),
                self.recorded.files.get(path),
                self.prover,
                other,
            )
            for path in paths
        }

    def owned_paths(self) -> list[str]:
        """Files that recorded recipes changed."""
        return [path for path, one in self.recorded.files.items() if one.recipes]

    def contents(self) -> Contents:
        if not self.recorded.files:
            return EMPTY
        return self.store.contents(self.recorded)

    # -- planning -------------------------------------------------------------------

    def plan_apply(self, requests: Sequence[tuple[RecipeInfo, Mapping[str, str]]]) -> Plan:
        """Add recipes to the set (or change their options, or renew them)."""
        wanted = {one.name: one for one in self.recorded.recipes}
        for info, options in requests:
            wanted[info.name] = _applied(info, options)
        return self._plan("apply", wanted, tuple(info.name for info, _ in requests))

    def plan_reapply(self) -> Plan:
        """The same set with today's recipes, tap and SGLang files."""
        wanted = {}
        for one in self.recorded.recipes:
            wanted[one.name] = _applied(self.registry.recorded(one), one.options)
        return self._plan("reapply", wanted, tuple(wanted))

    def plan_revert(self, names: Sequence[str]) -> Plan:
        """Take recipes out of the set; no names: all of them, and foreign marks too."""
        known = {one.name: one for one in self.recorded.recipes}
        for name in names:
            if name not in known and self.registry.find(name) is None:
                self.registry.get(name)  # raises, with the nearest names
        left = {k: v for k, v in known.items() if names and k not in names}
        gone = tuple(name for name in known if name not in left)
        return self._plan("revert", left, gone)

    def _plan(self, action: str, wanted: Mapping[str, Applied], names: tuple[str, ...]) -> Plan:
        infos = self._infos(wanted)
        if action != "revert" and self._is_current(wanted, infos):
            return self._nothing(action, names)
        tap = dict(tap_files()) if any(i.uses_tap for i in infos) else {}
        paths = dict.fromkeys(self.owned_paths())
        paths.update(dict.fromkeys(p for info in infos for p in info.files))
        if not self.recorded.recipes and action == "revert":
            paths.update(dict.fromkeys(self.foreign_marks()))
        paths.update(dict.fromkeys(tap))
        standings = self.standings(list(paths))
        self._refuse_missing(standings)
        recorded = self.contents()
        originals, new_epoch = take_originals(standings, self.recorded, recorded)
        composition = self._compose(originals, infos, wanted, tap)
        kept, epoch = self._kept(wanted, composition, infos), self.recorded.epoch
        changed = plan_files(
            standings,
            self.recorded,
            recorded,
            originals,
            composition,
            must_parse=action != "revert",
        )
        version = self.target.version
        if not new_epoch and action == "revert":
            version = self.recorded.version
        return Plan(
            action=action,
            previous=self.recorded,
            recipes=tuple(sorted(kept, key=lambda one: one.name)),
            files=changed,
            outcomes=composition.outcomes,
            epoch=epoch + 1 if new_epoch else epoch,
            version=version,
            tap=tap_digest() if TAP_FOLDER + "/__init__.py" in composition.files else "",
            names=names,
        )

    def _infos(self, wanted: Mapping[str, Applied]) -> list[RecipeInfo]:
        infos = [self.registry.recorded(one) for one in wanted.values()]
        try:
            return canonical(infos)
        except ValueError as problem:
            raise UsageError(str(problem), hint="look at their `after`") from None

    def _is_current(
        self, wanted: Mapping[str, Applied], infos: Sequence[RecipeInfo]
    ) -> bool:
        """Whether the tree is this set already, decided without importing recipes."""
        if not wanted or {one.name: one for one in self.recorded.recipes} != dict(wanted):
            return False
        if any(info.digest != wanted[info.name].digest for info in infos):
            return False
        if self.recorded.tap and self.recorded.tap != tap_digest():
            return False
        if self.recorded.version != self.target.version:
            return False
        return all(
            one.state is FileState.APPLIED
            for one in self.standings(self.owned_paths()).values()
        )

    def _nothing(self, action: str, names: tuple[str, ...]) -> Plan:
        state = self.recorded
        return Plan(
            action=action,
            previous=state,
            recipes=state.recipes,
            files=(),
            epoch=state.epoch,
            version=state.version,
            tap=state.tap,
            names=names,
        )

    def _compose(
        self,
        originals: Mapping[str, bytes | None],
        infos: Sequence[RecipeInfo],
        wanted: Mapping[str, Applied],
        tap: Mapping[str, bytes],
    ) -> Composition:
        members = []
        if infos:
            # LibCST costs more than a whole revert: only where recipes run
            from patchkit import engine

            members = [
                Member(
                    info,
                    partial(_run, engine.apply, load(info), wanted[info.name].options),
                )
                for info in infos
            ]
        composition = compose(originals, members, tap)
        if composition.failures:
            raise _refusal(composition.failures)
        return composition

    def _kept(
        self,
        wanted: Mapping[str, Applied],
        composition: Composition,
        infos: Sequence[RecipeInfo],
    ) -> list[Applied]:
        """Recipes that did something; one that is NOT_NEEDED everywhere is not applied."""
        digests = {info.name: info for info in infos}
        busy = {name for owners in composition.owners.values() for name in owners}
        return [
            _applied(digests[name], one.options)
            for name, one in wanted.items()
            if name in busy
        ]

    def foreign_marks(self) -> dict[str, tuple[str, ...]]:
        """Marked files of a tree without a journal, and the recipes in their marks."""
        package = self.target.package
        found: dict[str, tuple[str, ...]] = {}
        for path in sorted({p for info in self.registry.all() for p in info.files}):
            data = files.read(package, path)
            names = mark_names(data or b"")
            if names:
                found[path] = names
        for tap in sorted((package / TAP_FOLDER).glob("*.py")):
            path = f"{TAP_FOLDER}/{tap.name}"
            if (files.read(package, path) or b"").startswith(TAP_HEADER):
                found[path] = ("tap",)
        return found

    def _refuse_missing(self, standings: Mapping[str, Standing]) -> None:
        missing = [
            path
            for path, one in standings.items()
            if one.data is None and not path.startswith(TAP_FOLDER + "/")
        ]
        if missing:
            raise Refused(
                f"{', '.join(missing)}: missing from {self.target.package}",
                hint="restore the file (git checkout, or reinstall SGLang)",
            )

    # -- writing --------------------------------------------------------------------

    def execute(self, plan: Plan, *, commit: bool = False) -> tuple[list[str], str | None]:
        """Journal first, then the files; notes, and the id of the user's commit.

        Call it inside ``writing()``. Raises Refused with nothing written, or, with
        ``commit``, Refused when git would not commit what was written.
        """
        if commit:
            self._check_commit(plan)
        notes: list[str] = []
        if plan.changes:
            problems = files.check_writable(self.target.package, plan.writes)
            if problems:
                raise Refused(
                    "the target is read-only; nothing was written",
                    hint="make these writable (chmod u+w), or patch a copy",
                    details=tuple(problems),
                )
            notes = self._write(plan)
        if not commit:
            return notes, None
        assert self.checkout is not None
        inside = [f"{self.target.prefix}/{one.path}" for one in plan.files]
        inside += [f"{self.target.prefix}/{path}" for path in self.owned_paths()]
        message = f"{_subject(plan)}\n\n{_trailers(plan)}"
        made = git_checkout.commit(self.checkout, sorted(set(inside)), message)
        return notes, made

    def _write(self, plan: Plan) -> list[str]:
        entry = self.store.record(
            plan.state(),
            plan.contents(),
            self.recorded.commit,
            _subject(plan),
            _trailers(plan),
        )
        try:
            notes = files.write_all(self.target.package, plan.writes)
        except Refused:
            self.store.drop_pending()
            raise
        except OSError as problem:
            raise Refused(
                f"writing stopped half-way: {problem}",
                hint="patchkit status finishes or undoes it",
            ) from None
        self.store.settle(entry)
        self._read()
        return notes

    def _check_commit(self, plan: Plan) -> None:
        if self.checkout is None:
            raise UsageError(
                f"--commit: no git checkout tracks {self.target.package}",
                hint="leave --commit away; patchkit log shows patchkit's own journal",
            )
        git_checkout.refuse_commit_in_progress(self.checkout)
        edited = []
        for one in plan.files:
            if one.before is None:
                continue
            head = git_checkout.head_blob(
                self.checkout, f"{self.target.prefix}/{one.path}"
            )
            if head is None and one.original is None:
                continue
            if one.merged or head not in (one.before, one.original):
                edited.append(one.path)
        if edited:
            raise Refused(
                f"--commit: {', '.join(edited)} has uncommitted edits of yours, which"
                " would be committed with the patch",
                hint="commit or stash them first",
            )


def _run(
    apply: Callable[..., Outcome],
    recipe: object,
    options: Mapping[str, str],
    source: bytes,
    path: str,
) -> Outcome:
    return apply(recipe, source, path, options)


def _applied(info: RecipeInfo, options: Mapping[str, str]) -> Applied:
    return Applied(
        info.name,
        info.version,
        dict(options),
        info.digest,
        info.origin,
        info.inserts_only,
    )


def _refusal(failures: Sequence[Outcome]) -> Refused:
    details = []
    for outcome in failures:
        for site in outcome.failures:
            details.append(
                f"{outcome.path}: {outcome.recipe}: {site.name}:"
                f" {site.status.value}: {site.detail}"
            )
            if site.nearest:
                details.append(f"    nearest: {site.nearest}")
    missing = all(one.status is Status.ANCHOR_MISSING for one in failures)
    recipes = ", ".join(sorted({one.recipe for one in failures}))
    what = "does not fit this tree" if missing else "can't be applied"
    return Refused(
        f"{recipes} {what}; nothing was written",
        hint="this tree has a shape that the recipe does not know: is it a fork, or"
        " newer than this patchkit?"
        if missing
        else "see the reasons above",
        details=tuple(details),
    )


def _subject(plan: Plan) -> str:
    names = ", ".join(plan.names) or "everything"
    return f"{plan.action.capitalize()} {names}"


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
