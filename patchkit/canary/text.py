"""What the canary commands say. Pure."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

from patchkit.canary.check import Checked
from patchkit.canary.code import MODULI
from patchkit.canary.expect import mean_accept_length
from patchkit.canary.folder import manifest
from patchkit.canary.margins import Proof
from patchkit.canary.measured import Measured
from patchkit.canary.plan import DRAFTS, Plan
from patchkit.report.style import Style, wrap

WIDTH = 79
#: Draft steps of the launch command.
STEPS = 3


def launch_command(plan: Plan, out: Path, draft: str = "draft") -> str:
    """For a shell, a few arguments a line."""
    parts = [
        "python -m sglang.launch_server",
        f"--model-path {quote(str(out / 'target'))} --dtype {plan.dtype}",
        "--speculative-algorithm EAGLE3",
        f"--speculative-draft-model-path {quote(str(out / draft))}",
        f"--speculative-num-steps {STEPS} --speculative-eagle-topk 1",
        f"--speculative-num-draft-tokens {STEPS + 1}",
    ]
    if plan.tp > 1:
        parts.append(f"--tp-size {plan.tp}")
    return _CONTINUED.join(parts)


#: Between lines of a shell's command.
_CONTINUED = " \\\n    "


def made_text(plan: Plan, out: Path, proof: Proof, style: Style) -> str:
    lines = [style(f"{out}", "bold")]
    ranks = "one rank" if plan.tp == 1 else f"{plan.tp} ranks"
    lines += _part(
        "target",
        f"{plan.layers} layers, hidden {plan.hidden}, {plan.heads} heads,"
        f" {plan.dtype}; digits spread over {ranks}",
    )
    for name, draft in DRAFTS.items():
        layers = ", ".join(map(str, draft.layers(plan)))
        what = f"reads the states in front of layers {layers}"
        if draft.with_ids:
            what += f"; config names {', '.join(map(str, plan.ids))}"
        if draft.strict:
            what += "; strict about positions"
        lines += _part(name, what)
    lines += ["", style(f"arithmetic of {plan.dtype}", "bold")]
    lines.append(f"  {'logits':<32}  right  next  apart, in steps of the dtype")
    for margin in proof.logits:
        lines.append(
            f"  {margin.what:<32} {margin.right:6.2f} {margin.wrong:6.2f}"
            f"  {_count(margin.steps)}"
        )
    lines.append(f"  {'attention':<32}   nats  weight of all other positions")
    for one in proof.attention:
        lines.append(f"  {one.what:<32} {one.nats:6.1f}  {one.others:.0e}")
    title = f"accept length, with steps of {STEPS} candidates"
    lines += ["", style(title, "bold")]
    lines.append(f"  right{STEPS + 1.0:>30.4f}   histogram {_full(STEPS)}")
    for digits, what in LOST:
        name = " and ".join(str(MODULI[digit]) for digit in digits)
        mean = mean_accept_length(digits, STEPS)
        lines.append(f"  lost modulo {name:<16} {mean:6.4f}   {what}")
    lines += ["", style("start the server", "bold")]
    lines += ["  " + launch_command(plan, out), "", style("then", "bold")]
    check = [
        "  patchkit canary check http://127.0.0.1:30000",
        f"--pair {quote(str(out))}",
    ]
    short = sum(map(len, check)) < WIDTH
    lines.append((" " if short else _CONTINUED).join(check))
    return "\n".join(lines)


def _part(name: str, what: str) -> list[str]:
    first, *more = wrap(what, WIDTH - 19)
    return [f"  {name:<16} {first}", *(" " * 19 + line for line in more)]


def _full(steps: int) -> str:
    """The histogram of a draft that is always right."""
    return f"[{', '.join(['0'] * steps)}, all]"


#: The sets of digits that go lost together, and what that is.
LOST = (
    ((0,), "state 0"),
    ((1,), "state 1"),
    ((2,), "state 2"),
    ((0, 1, 2), "all three states"),
    ((3, 4), "the draft's embedding or attention"),
    ((4,), "the position before, in the KV cache"),
)


def _count(steps: float) -> str:
    return f"{steps:.0f}" if steps < 10000 else f"{steps:.0e}"


def made_json(plan: Plan, out: Path, proof: Proof) -> dict[str, Any]:
    return manifest(plan) | {
        "folder": str(out),
        "launch": launch_command(plan, out),
        "logits": [asdict(one) | {"steps": one.steps} for one in proof.logits],
        "attention": [asdict(one) for one in proof.attention],
        "accept_length": {
            "right": STEPS + 1.0,
            "lost": [
                {
                    "moduli": [MODULI[digit] for digit in digits],
                    "accept_length": mean_accept_length(digits, STEPS),
                }
                for digits, _ in LOST
            ],
        },
    }


def checked_text(checked: Checked, style: Style) -> str:
    measured, verdict = checked.measured, checked.verdict
    word = style("RIGHT", "green") if verdict.right else style("FAULT", "red")
    first, *more = wrap(verdict.text, WIDTH - 7)
    lines = [f"{word}  {first}", *("       " + line for line in more), ""]
    named = ", ".join(f"{k} {v}" for k, v in checked.arguments.items() if v is not None)
    lines += _row("server", f"SGLang {checked.version}; {named}")
    if measured.plan is not None and measured.draft:
        layers = DRAFTS[measured.draft].layers(measured.plan)
        lines += _row("layers", f"in front of {', '.join(map(str, layers))} expected")
    form = f"accept length {measured.steps + 1:.2f}, histogram {_full(measured.steps)}"
    lines += _row("expected", form)
    for name, one in (("alone", measured), ("together", checked.again)):
        if one.answers:
            lines += _row(name, _counted(one))
    for text in checked.notes:
        lines += _row("note", text)
    for text in verdict.evidence:
        lines += _row("seen", text)
    for fault in verdict.faults:
        text = fault.what + (f"; to tell: {fault.tell}" if fault.tell else "")
        lines += _row("may be", text)
    return "\n".join(lines)


def _counted(measured: Measured) -> str:
    steps = sum(one.verifies for one in measured.answers)
    shown = measured.counts or "not given by this release"
    return f"accept length {measured.mean:.2f} in {steps} steps, histogram {shown}"


def _row(name: str, text: str) -> list[str]:
    first, *more = wrap(text, WIDTH - 10)
    return [f"{name:<10}{first}", *(" " * 10 + line for line in more)]


def checked_json(checked: Checked) -> dict[str, Any]:
    measured, verdict = checked.measured, checked.verdict
    return {
        "right": verdict.right,
        "verdict": verdict.text,
        "lost_moduli": [MODULI[digit] for digit in verdict.lost],
        "faults": [asdict(one) for one in verdict.faults],
        "evidence": list(verdict.evidence),
        "notes": list(checked.notes),
        "sglang": checked.version,
        "arguments": checked.arguments,
        "draft": measured.draft,
        "steps": measured.steps,
        "expected_accept_length": measured.steps + 1,
        "alone": _measured_json(measured),
        "together": _measured_json(checked.again),
        "digits": {
            str(modulus): state.value
            for modulus, state in zip(MODULI, measured.chart.states())
        }
        if measured.chart is not None
        else None,
    }


def _measured_json(measured: Measured) -> dict[str, Any]:
    return {
        "accept_length": round(measured.mean, 4),
        "histogram": measured.counts or None,
        "answers": [asdict(one) for one in measured.answers],
    }
