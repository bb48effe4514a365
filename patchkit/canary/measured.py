"""What was measured: answers of a server or an engine, and which losses fit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from patchkit.canary.chart import Chart
from patchkit.canary.expect import accept_sequence, histogram, losses
from patchkit.canary.plan import Plan
from patchkit.canary.states import States


@dataclass(frozen=True)
class Answer:
    """To one prompt. ``verifies``: verify steps. ``counts``: how many of these accepted
    0, 1, ... candidates, up to the most that any did; empty where the release does not
    say. ``accepted``: what each accepted, where that is known."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    verifies: int
    counts: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()

    def histogram(self, steps: int) -> list[int]:
        return [*self.counts, *[0] * (steps + 1 - len(self.counts))]

    def fits(
        self,
        steps: int,
        lost: Mapping[int, int],
        first: Mapping[int, int] | None = None,
    ) -> bool:
        """Whether it is what the closed form says. The last step may have been cut
        short by the number of tokens asked for."""
        full = accept_sequence(self.prompt, len(self.tokens), steps, lost, first)
        if not self.counts and not self.accepted:
            return self.verifies == len(full)
        for last in range(full[-1] + 1 if full else 0):
            one = [*full[:-1], last]
            if self.accepted:
                if list(self.accepted) == one:
                    return True
            elif self.histogram(steps) == histogram(one, steps):
                return True
        return not full and not self.verifies


@dataclass(frozen=True)
class Measured:
    """``draft``: which of the pair's drafts, by its folder's name; "" if unknown.
    ``chart``: of its guesses, if these were asked for. ``tp``: ranks of the server.
    ``states``: that the draft was handed, where they can be seen."""

    steps: int
    answers: tuple[Answer, ...]
    draft: str = "draft"
    plan: Plan | None = None
    chart: Chart | None = None
    tp: int = 1
    states: States | None = None

    @property
    def counts(self) -> list[int]:
        """The histogram of all answers; empty if one has none."""
        if not all(one.counts for one in self.answers):
            return []
        every = [one.histogram(self.steps) for one in self.answers]
        return [sum(column) for column in zip(*every)]

    @property
    def mean(self) -> float:
        """Tokens a verify step."""
        verifies = sum(one.verifies for one in self.answers)
        tokens = sum(len(one.tokens) - 1 for one in self.answers)
        return tokens / verifies if verifies else 0.0

    @property
    def nothing(self) -> bool:
        """Whether no candidate was accepted."""
        return not any(self.counts[1:]) if self.counts else self.mean <= 1

    def fitting(self) -> list[dict[int, int]]:
        """The ways to lose digits whose closed form is what was measured."""
        return [lost for lost in losses() if self._fits(lost)]

    def fitting_first(self) -> list[dict[int, int]]:
        """Likewise, if they are lost in the first step of each answer only."""
        return [lost for lost in losses() if self._fits({}, lost)]

    def fitting_later(self) -> list[dict[int, int]]:
        """Likewise, if they are lost in all steps but the first."""
        return [lost for lost in losses() if self._fits(lost, {})]

    def _fits(
        self, lost: Mapping[int, int], first: Mapping[int, int] | None = None
    ) -> bool:
        return all(one.fits(self.steps, lost, first) for one in self.answers)
