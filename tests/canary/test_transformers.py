"""The target in another implementation, in bfloat16: the very same numbers."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from patchkit.canary.code import continuation, counting  # noqa: E402
from patchkit.canary.folder import write_pair  # noqa: E402
from patchkit.canary.plan import make_plan  # noqa: E402
from patchkit.canary.simulate import Target  # noqa: E402
from patchkit.canary.target import target_tensors  # noqa: E402

pytestmark = pytest.mark.probe


def test_transformers_agrees_to_the_last_bit(tmp_path):
    from transformers import AutoModelForCausalLM

    plan = make_plan(layers=9, heads=8, dtype="bfloat16", tp=2)
    write_pair(plan, tmp_path / "pair")
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "pair" / "target", dtype=torch.bfloat16
    )
    text = [*counting(2296, 300), 4, 77]
    with torch.no_grad():
        out = model(torch.tensor([text]), output_hidden_states=True)
    guessed = out.logits[0].argmax(dim=-1).tolist()
    assert guessed[1:] == [
        continuation(text[:n], 1)[0] for n in range(2, len(text) + 1)
    ]
    run = Target(plan, target_tensors(plan), text[:6])
    for found, wanted in zip(out.hidden_states[:-1], run.states):
        for position, state in enumerate(wanted):
            row = found[0, position].tolist()
            assert {c: v for c, v in enumerate(row) if abs(v) > 1e-6} == {
                c: v for c, v in state.items() if abs(v) > 1e-6
            }
