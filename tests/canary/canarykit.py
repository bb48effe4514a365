"""A server in the form of the closed form: what tests of ``check`` ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from patchkit.canary.code import continuation, digits, number_at
from patchkit.canary.expect import accept_sequence, histogram
from patchkit.canary.measured import Answer

INFO = {
    "version": "0.5.9",
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_draft_model_path": "/models/pair/draft",
}


def answer(
    prompt: Sequence[int],
    tokens: int,
    lost: Mapping[int, int] | Sequence[int] = (),
    *,
    steps: int = 3,
    most: int | None = None,
    told: bool = True,
    streamed: bool = False,
    first: Mapping[int, int] | None = None,
) -> Answer:
    """``most``: no step accepts more. ``told``: by a release with a histogram."""
    accepted = accept_sequence(prompt, tokens, steps, lost, first)
    if most is not None:
        accepted = []
        while sum(accepted) + len(accepted) + 1 < tokens:
            accepted.append(most)
    counts = histogram(accepted, steps)
    while counts and not counts[-1]:
        counts.pop()
    return Answer(
        tuple(prompt),
        tuple(continuation(prompt, tokens)),
        len(accepted),
        tuple(counts) if told else (),
        tuple(accepted) if streamed else (),
    )


class Closed:
    """Loses ``lost``; ``known``: of some digits the only values that it guesses."""

    def __init__(
        self,
        lost: Mapping[int, int] | None = None,
        *,
        most: int | None = None,
        known: Mapping[int, set[int]] | None = None,
        info: Mapping[str, Any] | None = None,
        told: bool = True,
    ) -> None:
        self.lost = lost or {}
        self.most = most
        self.known = known
        self.told = told
        self._info = {**INFO, **(info or {})}

    def info(self) -> dict[str, Any]:
        return dict(self._info)

    def stream(self, prompt: Sequence[int], tokens: int) -> Answer:
        return self._answer(prompt, tokens, True)

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[Answer]:
        return [self._answer(prompt, tokens, False) for prompt in prompts]

    def _answer(self, prompt: Sequence[int], tokens: int, streamed: bool) -> Answer:
        if self.known is None:
            return answer(
                prompt,
                tokens,
                self.lost,
                most=self.most,
                told=self.told,
                streamed=streamed,
            )
        text = continuation(prompt, tokens + 8)
        accepted, at = [], 0
        while at + 1 < tokens:
            count = 0
            while count < 3 and self._guesses(text[at + 1 + count]):
                count += 1
            accepted.append(count)
            at += count + 1
        return Answer(
            tuple(prompt),
            tuple(text[:tokens]),
            len(accepted),
            tuple(histogram(accepted, 3)),
            tuple(accepted),
        )

    def _guesses(self, token: int) -> bool:
        assert self.known is not None
        has = digits(number_at(token))
        return all(has[digit] in values for digit, values in self.known.items())
