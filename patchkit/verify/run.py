"""``patchkit verify``: files, probe, jobs, verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from patchkit.errors import CannotRun
from patchkit.verify import checks as kinds
from patchkit.verify import order
from patchkit.verify.defects import release_key
from patchkit.verify.engine_requests import write_requests
from patchkit.verify.evidence import Evidence
from patchkit.verify.interpreter import choose_python
from patchkit.verify.jobs import Job, Result
from patchkit.verify.promises import Promises, find_promises
from patchkit.verify.revert import check_revert
from patchkit.verify.scratch import Scratch
from patchkit.verify.session import ProbeFailed, Session
from patchkit.verify.shape import tiny_shape
from patchkit.verify.trees import CORE, Trees, find_trees, write_overlay
from patchkit.verify.verdict import Check, Verdict, cannot_run
from patchkit.workspace.tree import Workspace

Say = Callable[[str], None]

#: The oldest release whose models the probe can set up.
FIRST = "0.4.9"


@dataclass(frozen=True)
class Options:
    baseline: str = "journal"
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    timeout: float = 120.0
    python: str | None = None
    device: str = "cpu"
    keep: Path | None = None
    engine: str = "no"


@dataclass(frozen=True)
class Report:
    """``info`` is what the probe says of its environment; ``remedies``: check -> the
    recipe that promises to make it right."""

    version: str
    package: str
    python: str
    why_python: str
    baseline: str
    applied: tuple[str, ...]
    checks: tuple[Check, ...]
    info: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    peak_mb: int = 0
    device: str = "cpu"
    remedies: Mapping[str, str] = field(default_factory=dict)

    def exit_code(self, *, strict: bool = False) -> int:
        """0, 1 (a FAIL; with ``strict`` a known defect), 4 (something could not run,
        or nothing did), 5 (a worker was killed after the time limit)."""
        if any(one.hung for one in self.checks):
            return 5
        verdicts = {one.verdict for one in self.checks}
        if Verdict.FAIL in verdicts:
            return 1
        if strict and any(one.defects for one in self.checks):
            return 1
        if Verdict.CANNOT_RUN in verdicts or Verdict.PASS not in verdicts:
            return 4
        return 0

    def counting(self, *, strict: bool) -> Report:
        """With ``strict``, what met a known defect is a FAIL, as the exit code says."""
        if not strict:
            return self
        counted = tuple(
            replace(one, verdict=Verdict.FAIL)
            if one.defects and one.verdict is Verdict.PASS
            else one
            for one in self.checks
        )
        return replace(self, checks=counted)


def verify(workspace: Workspace, options: Options, say: Say) -> Report:
    """Run the chosen checks on an open workspace; the target is not written to.

    Raises PatchkitError where the question makes no sense (no such baseline, no python
    to run it, too old a release); what the tree does is in the report.
    """
    began = time.perf_counter()
    chosen = kinds.choose(
        options.only, options.skip, options.engine, device=options.device
    )
    with ExitStack() as stack:
        stack.enter_context(workspace.reading(dry=True))
        needs_probe = [name for name in chosen if kinds.CHECKS[name].jobs]
        python, why = "", "not needed"
        found: dict[str, Check] = {}
        evidence, peak = Evidence({}), 0
        if needs_probe:
            _expect_covered(workspace.target.version)
            python, why = choose_python(
                workspace.target.package, options.python, options.device
            )
            trees = stack.enter_context(find_trees(workspace, options.baseline))
            run = _Run(workspace, options, python, say)
            evidence, found = run.checks(trees, needs_probe)
            peak = run.peak_mb
        if "revert" in chosen:
            start = time.perf_counter()
            found["revert"] = check_revert(workspace).timed(time.perf_counter() - start)
    return Report(
        version=workspace.target.version,
        package=str(workspace.target.package),
        python=python,
        why_python=why,
        baseline=options.baseline,
        applied=tuple(one.name for one in workspace.recorded.recipes),
        checks=tuple(found[name] for name in chosen),
        info=dict(evidence.info),
        seconds=round(time.perf_counter() - began, 3),
        peak_mb=peak,
        device=options.device,
        remedies={
            claim.partition("[")[0]: info.name
            for info in workspace.registry.near()
            for claim in info.fixes
        },
    )


def _expect_covered(version: str) -> None:
    """Raises CannotRun for a release older than ``FIRST``; a tree that says no release
    number is tried."""
    number, first = release_key(version), release_key(FIRST)
    if number is not None and first is not None and number < first:
        raise CannotRun(
            f"SGLang {version}: verify covers releases from {FIRST} on; older ones need"
            " compiled kernels or a GPU already to set models up",
            hint="--only revert checks what needs no model to run; or verify the same"
            f" recipes on {FIRST} or newer",
        )


def run_jobs(
    python: str,
    package: Path,
    jobs: Sequence[Job],
    modules: Sequence[str],
    *,
    timeout: float = 120.0,
    device: str = "cpu",
    keep: Path | None = None,
    engine: bool = False,
    say: Say = lambda text: None,
) -> tuple[dict[str, Any], dict[str, list[Result]]]:
    """What the probe says of its environment, and the results by job, rank by rank.

    Raises ProbeFailed if the probe can't be set up.
    """
    with Session(
        python,
        package,
        modules,
        timeout=timeout,
        start_timeout=timeout,
        device=device,
        keep=keep,
        engine=engine,
        say=say,
    ) as session:
        results: dict[str, list[Result]] = {}
        for result in session.run(jobs, lambda one: say(f"ran {one.job}")):
            results.setdefault(result.job, []).append(result)
        for ranks in results.values():
            ranks.sort(key=lambda one: one.rank)
        return session.info, results


class _Run:
    def __init__(
        self, workspace: Workspace, options: Options, python: str, say: Say
    ) -> None:
        self.workspace = workspace
        self.options = options
        self.python = python
        self.say = say
        self.peak_mb = 0
        self.engine = False

    def checks(
        self, trees: Trees, chosen: Sequence[str]
    ) -> tuple[Evidence, dict[str, Check]]:
        """The evidence, and a check for each name in ``chosen``."""
        promises = find_promises(self.workspace)
        setters = order.setters(self.workspace.target.package)
        with Scratch("overlay") as folder:
            patched = write_overlay(trees.patched, folder / "patched")
            baseline = write_overlay(trees.baseline, folder / "baseline")
            captures = order.captures(
                *(tree[CORE[0]] for tree in (trees.patched, trees.baseline))
            )
            wanted = any(kinds.CHECKS[name].engine for name in chosen)
            self.engine = captures and wanted
            requests = write_requests(folder) if self.engine else {}
            jobs = kinds.jobs_for(
                chosen,
                patched,
                None if trees.same else baseline,
                promises,
                setters=setters,
                requests=requests,
            )
            try:
                info, results = self._run(trees, jobs)
            except ProbeFailed as problem:
                return Evidence({}), _not_set_up(problem, chosen)
        everything = [one for ranks in results.values() for one in ranks]
        self.peak_mb = max((one.peak_mb for one in everything), default=0)
        reasons = [one.facts["fresh"] for one in everything if one.facts.get("fresh")]
        info["fresh"] = reasons[0] if reasons else ""
        shape = tiny_shape(setters) | {"captures": captures}
        evidence = self._evidence(
            trees, promises, shape, info, results, patched, chosen
        )
        found = {}
        for name in chosen:
            judge = kinds.CHECKS[name].judge
            assert judge is not None
            check = judge(evidence)
            if check.verdict is not Verdict.NOT_APPLICABLE:
                check = check.timed(_seconds(name, evidence))
            found[name] = check
        return evidence, found

    def _run(
        self, trees: Trees, jobs: Sequence[Job]
    ) -> tuple[dict[str, Any], dict[str, list[Result]]]:
        package = self.workspace.target.package
        here = [job for job in jobs if not job.name.startswith("baseline")]
        there = [job for job in jobs if job.name.startswith("baseline")]
        if trees.elsewhere is None:
            return self._jobs(package, trees, jobs)
        info, results = self._jobs(package, trees, here)
        if there:
            self.say(f"the baseline, {trees.name}, is another tree altogether")
            results |= self._jobs(trees.elsewhere, trees, there)[1]
        return info, results

    def _jobs(
        self, package: Path, trees: Trees, jobs: Sequence[Job]
    ) -> tuple[dict[str, Any], dict[str, list[Result]]]:
        return run_jobs(
            self.python,
            package,
            jobs,
            trees.modules(),
            timeout=self.options.timeout,
            device=self.options.device,
            keep=self.options.keep,
            engine=self.engine,
            say=self.say,
        )

    def _evidence(
        self,
        trees: Trees,
        promises: Promises,
        shape: dict[str, Any],
        info: dict[str, Any],
        results: dict[str, list[Result]],
        patched: kinds.Overlay,
        chosen: Sequence[str],
    ) -> Evidence:
        return Evidence(
            results,
            version=self.workspace.target.version,
            same=trees.same,
            applied=tuple(one.name for one in self.workspace.recorded.recipes),
            promises=promises.sites,
            fixed=promises.fixed,
            changes=promises.changes,
            no_draft=promises.no_draft,
            info=info,
            shape=shape,
            overlaid=frozenset(file for file in patched.values() if file),
            chosen=tuple(chosen),
        )


def _not_set_up(problem: ProbeFailed, chosen: Sequence[str]) -> dict[str, Check]:
    """Told in full by the first check; the others point to it."""
    first, *others = chosen
    found = {first: cannot_run(first, str(problem), problem.trace, hung=problem.hung)}
    why = f"the models were not set up: see {first}"
    for name in others:
        found[name] = cannot_run(name, why, hung=problem.hung)
    return found


def _seconds(name: str, evidence: Evidence) -> float:
    """Of the jobs that this check alone brought in, or else of its longest; of import
    the set-up of the probe, too."""
    ranks = [evidence.ranks(job) for job in kinds.CHECKS[name].jobs]
    times = [max(one.seconds for one in found) for found in ranks if found]
    spent = times[-1] if times else 0.0
    if name == "import":
        spent += float(evidence.info.get("seconds", 0.0))
    return round(spent, 3)
