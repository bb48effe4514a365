"""The checks by name: what each needs to be run, and who judges it. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from patchkit.errors import UsageError
from patchkit.verify.evidence import Evidence
from patchkit.verify.jobs import Job
from patchkit.verify.judge import (
    capture,
    engine,
    gates,
    hazards,
    model,
    parallel,
    wrapper,
)
from patchkit.verify.promises import Promises
from patchkit.verify.verdict import Check

#: Switches the taps of a recipe on; see ``patchkit.tap.settings``.
GATE = "EAGLE3_DEBUG"

Overlay = Mapping[str, str | None]


@dataclass(frozen=True)
class Kind:
    """``jobs``: names; a gated one is only run if a recipe promises a site.
    ``judge``: ``None`` for what the parent does itself. ``engine``: it starts SGLang's
    engine, and is only run if asked for."""

    jobs: tuple[str, ...]
    judge: Callable[[Evidence], Check] | None
    proves: str
    engine: bool = False


#: In the order of the report.
CHECKS: Mapping[str, Kind] = {
    "import": Kind(
        ("patched", "baseline"),
        model.judge_import,
        "all patched modules import; no stand-in is called in a forward pass",
    ),
    "weights": Kind(
        ("patched", "baseline"),
        model.judge_weights,
        "every parameter is written, and no tensor of a checkpoint is dropped",
    ),
    "capture": Kind(
        ("patched", "baseline"),
        model.judge_capture,
        "the captured states are the streams in front of the right layers, bit-equal",
    ),
    "draft": Kind(
        ("patched", "baseline"),
        model.judge_draft,
        "fc is applied exactly when widths differ; the hot-token map is right",
    ),
    "decode": Kind(
        ("patched", "baseline"),
        model.judge_decode,
        "a decode step equals a prefill of the same tokens",
    ),
    "golden": Kind(
        ("patched", "baseline"),
        model.judge_golden,
        "outputs have the statistics recorded for all releases",
    ),
    "tensor-parallel": Kind(
        ("patched", "baseline", "patched-tp2"),
        parallel.judge_tensor_parallel,
        "two ranks give what one gives",
    ),
    "fusion": Kind(
        ("patched", "baseline", "patched-fusion", "baseline-fusion"),
        parallel.judge_fusion,
        "the same with all-reduce fusion on, its kernel emulated",
    ),
    "capture-order": Kind(
        ("patched-order", "baseline-order"),
        parallel.judge_capture_order,
        "graphs and prefill capture the same layers, set in a server's order",
    ),
    "kimi-wrapper": Kind(
        ("patched", "baseline", "patched-kimi", "baseline-kimi"),
        wrapper.judge_wrapper,
        "the Kimi-K2.5 wrapper loads, hands EAGLE-3's calls on, and changes nothing",
    ),
    "unsorted-ids": Kind(
        ("patched-hazards", "baseline-hazards"),
        hazards.judge_unsorted,
        "explicit ids out of order are delivered as asked, or said",
    ),
    "embedding-ids": Kind(
        ("patched-hazards", "baseline-hazards"),
        hazards.judge_embedding,
        "id -1 captures the embedding, and disturbs no other id",
    ),
    "width-guard": Kind(
        ("patched-hazards", "baseline-hazards"),
        hazards.judge_width,
        "one layer's state in place of several does not pass in silence",
    ),
    "weight-guard": Kind(
        ("patched-hazards", "baseline-hazards"),
        hazards.judge_weights_lost,
        "a draft checkpoint with other names does not load in silence",
    ),
    "capture-switch": Kind(
        ("patched", "patched-switch"),
        capture.judge_switch,
        "if promised: switched off, the setters refuse and nothing is captured",
    ),
    "capture-removed": Kind(
        ("patched", "baseline"),
        capture.judge_removed,
        "if promised: the capture is gone, and the setter says so",
    ),
    "gate-off": Kind(
        ("patched", "baseline"),
        gates.judge_gate_off,
        "gate off: outputs bit-equal to the baseline, nothing said, no value read",
    ),
    "gate-on": Kind(
        ("patched", "baseline", "gated"),
        gates.judge_gate_on,
        "gate on: outputs bit-equal, and every promised site says what is true",
    ),
    "revert": Kind((), None, "reverting and applying again are exact, on a copy"),
    "bf16": Kind(
        ("patched-bf16", "baseline-bf16", "gated-bf16"),
        gates.judge_bfloat16,
        "capture, draft, decode, golden and both gates in bfloat16",
    ),
    engine.ACCEPT: Kind(
        ("patched-engine", "baseline-engine"),
        engine.judge_accept,
        "SGLang's engine accepts every draft token of the canary pair, also in a batch",
        engine=True,
    ),
    "engine-ids": Kind(
        ("patched-engine-ids",),
        engine.judge_ids,
        "the same with layer ids in the draft's configuration",
        engine=True,
    ),
    "engine-gate-off": Kind(
        ("patched-engine", "baseline-engine"),
        engine.judge_gate_off,
        "gate off: the engine's tokens, drafts and histogram are the baseline's",
        engine=True,
    ),
    "engine-gate-on": Kind(
        ("patched-engine", "baseline-engine", "gated-engine"),
        engine.judge_gate_on,
        "gate on: the same, and the taps tell of the layers and of fc what is true",
        engine=True,
    ),
    "engine-tp": Kind(
        ("patched-engine-tp",),
        engine.judge_tp,
        "two ranks accept every draft token",
        engine=True,
    ),
    "engine-steps": Kind(
        ("patched-engine", "patched-engine-steps", "baseline-engine-steps"),
        engine.judge_steps,
        "a draft that looks one position back finds it in later draft steps, too",
        engine=True,
    ),
    "engine-fusion": Kind(
        ("patched-engine", "patched-engine-fusion", "baseline-engine-fusion"),
        engine.judge_fusion,
        "the same with all-reduce fusion on, its kernel emulated",
        engine=True,
    ),
}


#: Whether a check starts an engine -> the choices with which it is meant.
_WITH_ENGINE = {False: ("no", "too"), True: ("only", "too")}


def choose(
    only: Sequence[str],
    skip: Sequence[str],
    engine: str = "no",
    *,
    device: str = "cpu",
) -> list[str]:
    """The names to run, in order; ``engine``: ``no``, ``only`` or ``too``, of the
    checks that start one. Raises UsageError for a name that there is not, or a check
    that can't run on ``device``."""
    for name in (*only, *skip):
        if name not in CHECKS:
            close = difflib.get_close_matches(name, CHECKS, 1)
            raise UsageError(
                f"no check is called {name!r}",
                hint=f"did you mean {close[0]}?"
                if close
                else f"there are {', '.join(CHECKS)}",
            )
    chosen = [
        name
        for name, kind in CHECKS.items()
        if (name in only if only else engine in _WITH_ENGINE[kind.engine])
        and name not in skip
    ]
    if not chosen:
        raise UsageError(
            "--only and --skip leave no check", hint=f"there are {', '.join(CHECKS)}"
        )
    if device != "cpu" and any(CHECKS[name].engine for name in chosen):
        raise UsageError(
            f"--device {device}: the engine-… checks run on a CPU",
            hint="patchkit canary run --device cuda asks a server of the tree's own",
        )
    return chosen


def jobs_for(
    chosen: Sequence[str],
    patched: Overlay,
    baseline: Overlay | None,
    promises: Promises,
    *,
    setters: Sequence[str],
    requests: Mapping[str, str] = MappingProxyType({}),
) -> list[Job]:
    """Jobs for ``chosen``, the longest first. ``baseline`` ``None``: it is the same as
    ``patched``, so its jobs are not run twice. ``requests``: the scenario of each
    variant that starts an engine; others are left out."""
    names = dict.fromkeys(job for check in chosen for job in CHECKS[check].jobs)
    scenarios = {
        "order": f"order:{','.join(setters)}",
        "kimi": "wrapped",
        "hazards": "hazards",
        "switch": "switch",
        **dict.fromkeys(("tp2", "fusion"), "short"),
    }
    found = []
    for name in names:
        whose, _, variant = name.partition("-")
        if whose == "gated" and not (promises.sites or "gate-on" in promises.fixed):
            continue
        if variant == "switch" and not promises.switch:
            continue
        if whose == "baseline" and baseline is None:
            continue
        if variant == "order" and not setters:
            continue
        engine = variant.startswith("engine")
        if engine and variant not in requests:
            continue
        overlay = baseline if whose == "baseline" else patched
        assert overlay is not None
        found.append(
            Job(
                name,
                overlay,
                scenario=requests[variant]
                if engine
                else scenarios.get(variant, "full"),
                dtype="bfloat16" if variant == "bf16" else "float32",
                ranks=2 if variant in ("tp2", "fusion") else 1,
                fusion=variant in ("fusion", "engine-fusion"),
                draft=not promises.no_draft,
                environment=_environment(whose, variant, promises),
            )
        )
    return sorted(found, key=_how_soon)


def _how_soon(job: Job) -> tuple[bool, int, bool]:
    """What takes longest comes first: two ranks, whether workers or an engine's."""
    ranks = 2 if job.fusion or job.name.endswith("-tp") else job.ranks
    return "-engine" not in job.name, -ranks, job.scenario != "full"


def _environment(whose: str, variant: str, promises: Promises) -> dict[str, str]:
    if variant == "switch":
        return {promises.switch: "0"}
    return {GATE: "1"} if whose == "gated" else {}
