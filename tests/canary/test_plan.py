"""Sizes: what is taken, what is refused, and that RMS norms are powers of two."""

from __future__ import annotations

import pytest

from patchkit.canary.plan import CONSTANTS, make_plan
from patchkit.errors import UsageError


@pytest.mark.parametrize("hidden", [256, 320, 384, 448, 960, 1088, 2048, 5120, 7168])
def test_norms_multiply_by_a_power_of_two(hidden):
    plan = make_plan(layers=7, hidden=hidden)
    for found, ones, copies in ((plan.constants, 5, 1), (plan.draft_constants, 7, 3)):
        squares = sum(one * one for one in found.fillers)
        total = ones + copies * found.amplitude**2 + squares
        assert total * found.scale**2 == hidden
        assert found.scale & (found.scale - 1) == 0 and found.amplitude in (2, 4)
        assert len(found.fillers) < CONSTANTS


def test_defaults_are_small():
    plan = make_plan()
    assert (plan.layers, plan.hidden, plan.heads) == (8, 384, 4)
    assert plan.default_layers == (2, 4, 5) and plan.id_layers == (2, 4, 7)


def test_kimi_k2():
    plan = make_plan(
        layers=61, hidden=7168, heads=64, dtype="bfloat16", ids=(2, 30, 58), tp=8
    )
    assert plan.default_layers == (2, 30, 58) and plan.id_layers == (3, 31, 59)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layers": 6}, "7"),
        ({"hidden": 256}, "257"),
        ({"hidden": 400}, "multiple of 64"),
        ({"dtype": "fp8"}, "bfloat16"),
        ({"ids": (1, 2)}, "three"),
        ({"ids": (3, 2, 5)}, "order"),
        ({"ids": (1, 2, 7)}, "1 to 6"),
        ({"ids": (0, 2, 5)}, "1 to 6"),
        ({"heads": 6, "tp": 2}, "multiple of 4"),
        ({"heads": 3}, "pairs"),
        ({"tp": 0}, "ranks"),
    ],
)
def test_what_does_not_fit_is_said(given, said):
    with pytest.raises(UsageError) as caught:
        make_plan(**given)
    assert said in caught.value.message + caught.value.hint and caught.value.hint
