"""Runs all mutants of a release, and says by which checks each was caught."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import in_draft  # noqa: E402
import in_logits  # noqa: E402
import in_tap  # noqa: E402
import in_target  # noqa: E402
from mutation import Mutant  # noqa: E402
from support import release_tree  # noqa: E402

from patchkit import engine, registry  # noqa: E402
from patchkit.model import Status  # noqa: E402
from patchkit.verify.evidence import Promise  # noqa: E402
from patchkit.verify.promises import Promises  # noqa: E402
from patchkit.verify.trees import CORE  # noqa: E402
from patchkit.verify.trials import Trials  # noqa: E402
from patchkit.verify.verdict import Verdict  # noqa: E402

RELEASES = ("0.5.5", "0.5.9", "0.5.15", "0.5.23")
MUTANTS: tuple[Mutant, ...] = (
    *in_target.MUTANTS,
    *in_draft.MUTANTS,
    *in_logits.MUTANTS,
    *in_tap.MUTANTS,
)
#: Cheap: they all judge one run of the mutant. What else a mutant names comes on top.
ALWAYS = (
    *("import", "weights", "capture", "draft", "decode", "golden"),
    "gate-off",
)
UNBROKEN = "(unbroken)"


@dataclass(frozen=True)
class Outcome:
    """``checks``: those that failed, with the first line of why."""

    mutant: Mutant
    checks: dict[str, str]

    @property
    def caught(self) -> bool:
        return bool(self.checks)

    @property
    def rightly(self) -> bool:
        return any(name in self.checks for name in self.mutant.by)


class Tree:
    """A release with debug-logging, every tap of it."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.package = release_tree(release) / "sglang"
        self.stock = {path: (self.package / path).read_bytes() for path in CORE}
        info = registry.Registry().get("debug-logging")
        recipe = registry.load(info)
        self.patched = dict(registry.tap_files())
        for path in CORE:
            done = engine.apply(recipe, self.stock[path], path, {"layers": "all"})
            assert done.status is Status.CHANGED, (path, done)
            self.patched[path] = done.source
        everything = b"".join(self.patched[path] for path in CORE).decode()
        self.promises = tuple(
            Promise(site, tuple(view.partition("[")[0] for view in views.split()))
            for site, views in info.promises
            if f'"{site}"' in everything  # not every release needs every site
        )

    def variants(self, mutants: Sequence[Mutant]) -> dict[str, dict[str, bytes]]:
        """Those that apply to this release, by name."""
        found = {}
        for one in mutants:
            changed = one.apply(self.patched, self.release)
            if changed is not None:
                found[one.key] = {**self.patched, one.path: changed}
        return found


def score(
    tree: Tree, mutants: Sequence[Mutant], python: str, *, timeout: float = 30.0
) -> Iterator[Outcome]:
    """An outcome for every mutant that applies; the probe imports once for all.

    Raises AssertionError if the unbroken tree fails: then no mutant proves anything.
    """
    variants = tree.variants(mutants)
    groups: dict[tuple[str, ...], list[Mutant]] = defaultdict(list)
    for one in mutants:
        if one.key in variants:
            more = [name for name in one.by if name not in ALWAYS]
            groups[(*ALWAYS, *more)].append(one)
    baseline = {**dict.fromkeys(tree.patched), **tree.stock}
    with Trials(
        python,
        tree.package,
        baseline,
        promises=Promises(tree.promises),
        timeout=timeout,
    ) as trials:
        for checks, members in groups.items():
            asked = {one.key: variants[one.key] for one in members}
            judged = trials.judge({UNBROKEN: tree.patched, **asked}, checks)
            by_name = {one.key: one for one in members}
            for name, found in judged:
                failed = {
                    check: said.reason or "; ".join(said.details[:1])
                    for check, said in found.items()
                    if said.verdict is Verdict.FAIL
                }
                if name == UNBROKEN:
                    verdicts = {check: said.verdict for check, said in found.items()}
                    wrong = {Verdict.FAIL, Verdict.CANNOT_RUN} & {*verdicts.values()}
                    assert not wrong, (tree.release, found)
                else:
                    yield Outcome(by_name[name], failed)
