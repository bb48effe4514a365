"""What the canary commands say. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from patchkit.canary.code import MODULI
from patchkit.canary.expect import mean_accept_length
from patchkit.canary.folder import DRAFTS, manifest
from patchkit.canary.plan import Plan
from patchkit.report.style import Style

#: Draft steps of the launch command.
STEPS = 3


def launch_command(plan: Plan, out: Path, draft: str = "draft") -> str:
    parts = [
        "python -m sglang.launch_server",
        f"--model-path {out}/target --dtype {plan.dtype}",
        f"--speculative-algorithm EAGLE3 --speculative-draft-model-path {out}/{draft}",
        f"--speculative-num-steps {STEPS} --speculative-eagle-topk 1"
        f" --speculative-num-draft-tokens {STEPS + 1}",
    ]
    if plan.tp > 1:
        parts.append(f"--tp-size {plan.tp}")
    return " \\\n    ".join(parts)


def made_text(plan: Plan, out: Path, style: Style) -> str:
    lines = [style(f"{out}", "bold")]
    lines.append(
        f"  target           {plan.layers} layers, hidden {plan.hidden},"
        f" {plan.heads} heads, {plan.dtype}"
    )
    for name, draft in DRAFTS.items():
        layers = ", ".join(map(str, draft.layers(plan)))
        what = f"captures in front of layers {layers}"
        if draft.with_ids:
            what += f"; its config names {', '.join(map(str, plan.ids))}"
        if draft.strict:
            what += "; strict about positions"
        lines.append(f"  {name:<16} {what}")
    lines += ["", "start the server:", "  " + launch_command(plan, out), ""]
    lines += ["then:", "  patchkit canary check http://127.0.0.1:30000"]
    return "\n".join(lines)


def made_json(plan: Plan, out: Path) -> dict[str, Any]:
    return manifest(plan) | {
        "folder": str(out),
        "launch": launch_command(plan, out),
        "accept_length": {
            "right": STEPS + 1,
            "lost": {str(m): mean_accept_length([i], 3) for i, m in enumerate(MODULI)},
        },
    }
