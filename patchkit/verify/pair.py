"""The canary pair that the engine checks run, and what is generated with it. Pure.

One pair serves them all: its digits lie on both shards of two ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from patchkit.canary import code, expect
from patchkit.canary.plan import Plan, make_plan

#: Draft tokens a verification; the bonus token comes on top.
STEPS = 3
#: First number and length of each prompt of a batch.
_BATCH = ((0, 3), (557, 9), (1204, 2), (1873, 33))


def plan() -> Plan:
    """Of the smallest pair for two ranks."""
    return make_plan(tp=2)


@dataclass(frozen=True)
class Generate:
    """One call of Engine's: ``name`` in a job's facts, prompts as token ids, and how
    many tokens each is continued by."""

    name: str
    prompts: Sequence[Sequence[int]]
    tokens: int

    def continuations(self) -> list[list[int]]:
        """What the target says, greedily, whatever the draft does."""
        return [code.continuation(one, self.tokens) for one in self.prompts]

    def accepted(self) -> list[list[int]]:
        """Of each prompt, the draft tokens accepted in each verification."""
        return [expect.accept_sequence(one, self.tokens, STEPS) for one in self.prompts]


def _prompts() -> list[list[int]]:
    return [code.counting(*one) for one in _BATCH]


#: Enough tokens that the loss of any digit shows. Large numbers: where nothing speaks
#: for any value of a digit, the draft takes the smallest number, which may be right.
SINGLE = Generate("single", [code.counting(1600, 3)], 61)
BATCH = Generate("batch", _prompts(), 25)


@dataclass(frozen=True)
class Variant:
    """``draft``: folder of the pair. ``tp``: ranks. ``arguments``: more of Engine's."""

    draft: str = "draft"
    tp: int = 1
    generate: tuple[Generate, ...] = (SINGLE, BATCH)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def request(self, pair: str) -> dict[str, Any]:
        """For ``probe.engine.request``; ``pair`` is a folder."""
        return {
            "target": f"{pair}/target",
            "draft": f"{pair}/{self.draft}",
            "steps": STEPS,
            "tp": self.tp,
            "generate": [vars(one) for one in self.generate],
            "arguments": dict(self.arguments),
        }


#: By the name of the job without whose it is.
VARIANTS: Mapping[str, Variant] = {
    "engine": Variant(),
    "engine-ids": Variant("draft-ids"),
    "engine-tp": Variant(tp=2),
    "engine-fusion": Variant(tp=2, generate=(BATCH,)),
    "engine-steps": Variant("draft-positions", generate=(SINGLE,)),
}
