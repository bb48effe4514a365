"""All planted faults under one release: what check-draft says, and what a run does."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults import FAULTS, Fault
from support import release_tree

from patchkit.draft.ask import Asker
from patchkit.draft.checkpoint import read_checkpoint
from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import Finding, Row
from patchkit.draft.gather import Case, gather, questions
from patchkit.draft.rules import judge
from patchkit.draft.tree import Files, read_tree
from patchkit.verify.interpreter import has_torch

#: Seen by default; ``PATCHKIT_DRAFT_RELEASES`` names others, `make drafts` sees all.
RELEASES = ("0.5.9", "0.5.23")


def probe_python() -> str | None:
    """An interpreter that can run SGLang's modules, if one is here."""
    named = os.environ.get("PATCHKIT_PROBE_PYTHON")
    return next(
        (one for one in (named, sys.executable) if one and has_torch(one)), None
    )


@dataclass(frozen=True)
class Seen:
    evidence: Evidence
    findings: tuple[Finding, ...]
    rows: tuple[Row, ...]
    trial: Mapping[str, Any]

    @property
    def errors(self) -> list[Finding]:
        return [one for one in self.findings if one.severity.value == "ERROR"]

    @property
    def codes(self) -> list[str]:
        return sorted(one.code for one in self.errors)


def run_faults(
    release: str,
    folder: Path,
    faults: Mapping[str, Fault] = FAULTS,
    *,
    overlay: Files | None = None,
    trials: bool = True,
) -> dict[str, Seen]:
    """``folder``: where the checkpoints are written."""
    python = probe_python()
    assert python is not None
    package = release_tree(release) / "sglang"
    overlay = overlay or {}
    tree = read_tree(package, overlay)
    cases = {
        name: Case(
            read_checkpoint(one.draft().write(folder / name)),
            one.against(),
            one.algorithm,
        )
        for name, one in faults.items()
    }
    with Asker(python, package, overlay) as asker:
        found = gather(asker, tree, release, cases)
        asked = [_trial(found[name], cases[name]) for name in cases if trials]
        ran = asker.ask({"trials": asked})["trials"] if asked else [{}] * len(cases)
    seen = {}
    for name, trial in zip(cases, ran):
        findings, rows = judge(found[name])
        seen[name] = Seen(found[name], tuple(findings), tuple(rows), trial)
    return seen


def _trial(evidence: Evidence, case: Case) -> dict[str, Any]:
    asked = questions(evidence.tree, case).target or {"steps": [None], "ids": None}
    wrapper = None
    if evidence.wrapper:
        module = evidence.tree.entries.get(evidence.target_class, "none")
        wrapper = [module, evidence.target_class]
    return {
        "kind": "trial",
        "entries": dict(evidence.tree.entries),
        "config": case.checkpoint.config,
        "files": [str(one) for one in case.checkpoint.files],
        "algorithm": case.algorithm,
        "target": dict(evidence.target),
        "wrapper": wrapper,
        "steps": asked["steps"],
        "ids": asked["ids"],
        "aux": evidence.aux,
    }


#: The order in which a server's start, and its first tokens, go wrong.
_STEPS = ("class", "config", "build", "load", "target", "share", "capture", "draft")
STEPS = (*_STEPS, "tokens", "done")


def disagreements(seen: Seen) -> list[str]:
    """Where the run did not do what was predicted, or did what was not."""
    predicted = {one.outcome for one in seen.errors}
    stops = [one.removeprefix("stops:") for one in predicted if "stops:" in one]
    wanted = min(stops, key=STEPS.index, default="done")
    step = seen.trial["step"]
    found = []
    if step != wanted:
        found.append(f"stops in {step}, not {wanted}: {seen.trial['error']}")
    reached = STEPS.index(step)
    for outcome, after, happened in _happened(seen):
        if reached > STEPS.index(after) and happened != (outcome in predicted):
            said = "happens, unsaid" if happened else "was said, and does not happen"
            found.append(f"{outcome} {said}: {seen.trial}")
    return found


def _happened(seen: Seen) -> list[tuple[str, str, bool]]:
    """Outcome, the step behind which it is known, and whether it came to be."""
    trial = seen.trial
    return [
        ("dropped", "load", bool(trial.get("dropped"))),
        ("unwritten", "share", bool(trial.get("unwritten")) and not _lost(seen)),
        ("layers", "capture", _other_layers(seen)),
        ("fc-skipped", "draft", trial.get("fc") is False),
        # under EAGLE nothing maps a draft's tokens, and none has any
        (
            "tokens",
            "tokens",
            seen.evidence.eagle3 and trial.get("tokens") != _tokens(seen),
        ),
    ]


def _lost(seen: Seen) -> bool:
    """Whether parameters are unwritten since their tensors' names are not known: that
    is said once."""
    codes = {one.code for one in seen.errors}
    return "names-dropped" in codes and "unwritten" not in codes


def _other_layers(seen: Seen) -> bool:
    captured = seen.trial.get("captured")
    if not captured or None in captured:
        return False
    ids = seen.evidence.ids
    if ids.ids is None:
        wanted = captured[-1]
    elif ids.read:
        wanted = seen.evidence.step(-1)["asked"]
    else:
        wanted = [one + 1 for one in ids.ids]
    return captured[-1] != wanted or captured[0] != captured[-1]


def _tokens(seen: Seen) -> list[int]:
    """What the draft's tokens stand for: the fixtures' every other one, or all."""
    rows = seen.trial.get("logits", [0])[-1]
    return list(range(rows)) if rows == 128 else list(range(0, 2 * rows, 2))
