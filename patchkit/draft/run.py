"""``patchkit check-draft``: read, ask, judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchkit.draft.ask import Asker
from patchkit.draft.checkpoint import Checkpoint, read_checkpoint, read_config
from patchkit.draft.finding import Finding, Row, Severity
from patchkit.draft.formats import Format
from patchkit.draft.gather import Case, gather
from patchkit.draft.rules import judge
from patchkit.draft.sanity import expect_few_layers, expect_target
from patchkit.draft.tree import Files, read_tree
from patchkit.verify.interpreter import choose_python
from patchkit.workspace.planner import Requests, plan_apply
from patchkit.workspace.tree import Workspace

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    against: Path
    algorithm: str = "EAGLE3"
    recipes: Requests = ()
    python: str | None = None
    timeout: float = 120.0


@dataclass(frozen=True)
class Report:
    """``renaming``: names under which more of the draft fits; {} if none is needed, or
    known. ``config``: the configuration in SGLang's terms, where that differs."""

    version: str
    package: str
    checkpoint: Checkpoint
    kind: Format
    target_class: str
    algorithm: str
    recipes: tuple[str, ...]
    assumed: str
    findings: tuple[Finding, ...]
    rows: tuple[Row, ...]
    renaming: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] | None = None
    known: frozenset[str] = frozenset()
    seconds: float = 0.0
    peak_mb: int = 0

    def count(self, severity: Severity) -> int:
        return sum(one.severity is severity for one in self.findings)

    @property
    def exit_code(self) -> int:
        """0; 1 if something is an error; 4 if the target could not be asked."""
        if self.count(Severity.ERROR):
            return 1
        return 4 if any(one.code == "target-not-built" for one in self.findings) else 0


def check_draft(
    workspace: Workspace, folder: Path, options: Options, say: Say
) -> Report:
    """Whether the checkpoint in ``folder`` fits. Nothing is written.

    Raises PatchkitError for what is no checkpoint, configuration or SGLang tree, and
    where SGLang can't be asked.
    """
    began = time.perf_counter()
    checkpoint = read_checkpoint(folder)
    against = read_config(options.against)
    for place, config in ((folder, checkpoint.config), (options.against, against)):
        expect_few_layers(place, config)
    with workspace.reading(dry=True):
        overlay = _overlay(workspace, options.recipes)
    package = workspace.target.package
    python, _ = choose_python(package, options.python)
    tree = read_tree(package, overlay)
    expect_target(options.against, against, tree.drafts)
    with Asker(python, package, overlay, timeout=options.timeout, say=say) as asker:
        if checkpoint.bins:
            checkpoint = asker.list_bins(checkpoint)
        algorithm = "EAGLE" if options.algorithm == "NEXTN" else options.algorithm
        case = Case(checkpoint, against, algorithm)
        evidence = gather(asker, tree, workspace.target.version, {"": case})[""]
        peak = asker.peak_mb
    findings, rows = judge(evidence)
    known = frozenset(info.name for info in workspace.registry.all())
    return Report(
        version=workspace.target.version,
        package=str(package),
        checkpoint=checkpoint,
        kind=evidence.kind,
        target_class=evidence.target_class,
        algorithm=evidence.algorithm,
        recipes=tuple(info.name for info, _ in options.recipes),
        assumed=evidence.assumed,
        findings=tuple(findings),
        rows=tuple(rows),
        renaming=evidence.renaming,
        config=dict(evidence.fields) if evidence.fields != evidence.config else None,
        known=known,
        seconds=round(time.perf_counter() - began, 3),
        peak_mb=peak,
    )


def _overlay(workspace: Workspace, recipes: Requests) -> Files:
    """The files that applying ``recipes`` would write."""
    return plan_apply(workspace, recipes).writes if recipes else {}
