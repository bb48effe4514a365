"""Verdicts on many variants of one tree, with one probe: for mutants.

    with Trials(python, package, stock, deferred=stock) as trials:
        for name, found in trials.judge({"reversed": {path: data}}, ["capture"]):
            print(name, found["capture"].verdict)

The probe imports once and forks for every job, so a variant costs about a second.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from patchkit.target import read_version
from patchkit.verify import order
from patchkit.verify.checks import CHECKS, jobs_for
from patchkit.verify.evidence import Evidence
from patchkit.verify.jobs import Job, Result, module_name
from patchkit.verify.promises import Promises
from patchkit.verify.session import Session
from patchkit.verify.shape import tiny_shape
from patchkit.verify.trees import CORE, Files, write_overlay
from patchkit.verify.verdict import Check

_BETWEEN = "|"
NOTHING = Promises()


class Trials:
    """``baseline``: the files that each variant is compared with (the three of
    ``trees.CORE`` at least); ``deferred``: further paths that some variant changes.
    ``promises`` are those of every variant for which ``judge`` is given no others."""

    def __init__(
        self,
        python: str,
        package: Path,
        baseline: Files,
        *,
        deferred: Iterable[str] = (),
        promises: Promises = NOTHING,
        timeout: float = 60.0,
        slots: int = 0,
    ) -> None:
        self.version = read_version(package)
        self.setters = order.setters(package)
        self.paths = tuple(dict.fromkeys([*CORE, *baseline, *deferred]))
        self.baseline = {path: baseline.get(path) for path in self.paths}
        self.promises = promises
        self.session = Session(
            python,
            package,
            [module_name(path) for path in self.paths],
            timeout=timeout,
            slots=slots,
        )
        self._stock: dict[str, list[Result]] = {}

    def __enter__(self) -> Trials:
        """Raises ProbeFailed."""
        self._folder = tempfile.TemporaryDirectory(prefix="patchkit-trials-")
        self.session.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.session.__exit__()
        self._folder.cleanup()

    def judge(
        self,
        variants: Mapping[str, Files],
        checks: Sequence[str],
        promises: Mapping[str, Promises] = MappingProxyType({}),
    ) -> Iterator[tuple[str, dict[str, Check]]]:
        """For each variant, by its name, the checks asked for (``revert`` is none of
        them: it needs a journal). A variant holds what it changes, by path."""
        promised = {name: promises.get(name, self.promises) for name in variants}
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        stock = write_overlay(self.baseline, folder / "baseline")
        jobs: list[Job] = []
        files: dict[str, frozenset[str]] = {}
        for number, (name, changes) in enumerate(variants.items()):
            overlay = write_overlay(
                {**self.baseline, **changes}, folder / f"variant{number}"
            )
            files[name] = frozenset(file for file in overlay.values() if file)
            for job in self._jobs(checks, overlay, stock, promised[name]):
                if not job.name.startswith("baseline"):
                    jobs.append(replace(job, name=f"{name}{_BETWEEN}{job.name}"))
                elif job.name not in self._stock:
                    self._stock[job.name] = []
                    jobs.append(job)
        results: dict[str, dict[str, list[Result]]] = defaultdict(dict)
        for result in self.session.run(jobs):
            name, between, job_name = result.job.rpartition(_BETWEEN)
            where = results[name] if between else self._stock
            ranks = where.setdefault(job_name, [])
            ranks.append(replace(result, job=job_name))
            ranks.sort(key=lambda one: one.rank)
        for name in variants:
            yield (
                name,
                self._verdicts(results[name], files[name], checks, promised[name]),
            )

    def _jobs(
        self,
        checks: Sequence[str],
        overlay: Mapping[str, str | None],
        stock: Mapping[str, str | None],
        promises: Promises,
    ) -> list[Job]:
        return jobs_for(checks, overlay, stock, promises, setters=self.setters)

    def _verdicts(
        self,
        results: Mapping[str, Sequence[Result]],
        files: frozenset[str],
        checks: Sequence[str],
        promises: Promises,
    ) -> dict[str, Check]:
        evidence = Evidence(
            {**self._stock, **results},
            version=self.version,
            same=False,
            promises=promises.sites,
            fixed=promises.fixed,
            changes=promises.changes,
            info=self.session.info,
            shape=tiny_shape(self.setters),
            overlaid=files,
            chosen=tuple(checks),
        )
        found = {}
        for name in checks:
            judge = CHECKS[name].judge
            if judge is None:
                raise ValueError(f"{name} needs a journal, which a variant has not")
            found[name] = judge(evidence)
        return found
