"""What a planted fault is predicted to do, and whether it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from patchkit.canary.chart import State
from patchkit.canary.code import MODULI
from patchkit.canary.diagnose import diagnose
from patchkit.canary.expect import accept_sequence, histogram
from patchkit.canary.measured import Measured
from patchkit.verify.jobs import Result


@dataclass(frozen=True)
class Outcome:
    """``measured``: ``None`` where the engine ended, which ``result`` then tells of."""

    result: Result
    measured: Measured | None

    @property
    def accepted(self) -> list[int]:
        """Of the first prompt, verification by verification."""
        return list(self.measured.answers[0].accepted) if self.measured else []

    @property
    def digits(self) -> str:
        """A letter for each modulus: right, lost, shifted, wrong, partly, unknown."""
        if self.measured is None or self.measured.chart is None:
            return ""
        return "".join(one.value[0] for one in self.measured.chart.states())

    @property
    def target_right(self) -> bool:
        if self.measured is None:
            return False
        verdict = diagnose(self.measured)
        return not verdict.text.startswith("the target itself")


class Form:
    """A prediction."""

    def told(self, prompt: Sequence[int], tokens: int, steps: int) -> str:
        """Accept length and histogram, as far as they are predicted."""
        raise NotImplementedError

    def came_true(self, found: Outcome, prompt: Sequence[int], tokens: int) -> bool:
        raise NotImplementedError


@dataclass(frozen=True)
class Taken(Form):
    """Digits are lost and taken for these values; nothing lost: all is right."""

    digits: Mapping[int, int] = field(default_factory=dict)

    def told(self, prompt: Sequence[int], tokens: int, steps: int) -> str:
        accepted = accept_sequence(prompt, tokens, steps, dict(self.digits))
        mean = 1 + sum(accepted) / len(accepted)
        return f"{mean:.4g} {histogram(accepted, steps)}"

    def came_true(self, found: Outcome, prompt: Sequence[int], tokens: int) -> bool:
        wanted = accept_sequence(prompt, tokens, 3, dict(self.digits))
        return found.target_right and found.accepted == wanted


@dataclass(frozen=True)
class Cycle(Form):
    """The verifications accept ``first``, and from then on ``then`` again and again."""

    then: tuple[int, ...]
    first: tuple[int, ...] = ()

    def accepted(self, tokens: int) -> list[int]:
        found: list[int] = []
        at = 1
        while at < tokens:
            number = len(found)
            rest = number - len(self.first)
            count = self.first[number] if rest < 0 else self.then[rest % len(self.then)]
            found.append(count)
            at += count + 1
        return found

    def told(self, prompt: Sequence[int], tokens: int, steps: int) -> str:
        accepted = self.accepted(tokens)
        mean = 1 + sum(accepted) / len(accepted)
        return f"{mean:.4g} {histogram(accepted, steps)}"

    def came_true(self, found: Outcome, prompt: Sequence[int], tokens: int) -> bool:
        return found.target_right and found.accepted == self.accepted(tokens)


NOTHING = Cycle((0,))


@dataclass(frozen=True)
class Wrong(Form):
    """These digits are wrong, the others right; how often they are right by chance is
    not predicted."""

    digits: tuple[int, ...]

    def told(self, prompt: Sequence[int], tokens: int, steps: int) -> str:
        names = ", ".join(str(MODULI[digit]) for digit in self.digits)
        return f"no closed form; modulo {names} wrong"

    def came_true(self, found: Outcome, prompt: Sequence[int], tokens: int) -> bool:
        if found.measured is None or found.measured.chart is None:
            return False
        states = found.measured.chart.states()
        wrong = tuple(n for n, one in enumerate(states) if one is not State.RIGHT)
        return found.target_right and wrong == self.digits


@dataclass(frozen=True)
class Says(Form):
    """The canary says so, whatever is accepted: it has seen the states, or ``fc``.
    ``all_``: predicted is that every candidate is accepted all the same."""

    words: str
    all_: bool = False

    def told(self, prompt: Sequence[int], tokens: int, steps: int) -> str:
        accepted = f"{steps + 1} all the same; " if self.all_ else ""
        return f"{accepted}said: {self.words}"

    def came_true(self, found: Outcome, prompt: Sequence[int], tokens: int) -> bool:
        if found.measured is None or not found.target_right:
            return False
        full = found.accepted == accept_sequence(prompt, tokens, 3)
        return self.words in diagnose(found.measured).text and full == self.all_


@dataclass(frozen=True)
class Ends(Form):
    """The engine ends; ``with_`` is in what it says."""

    with_: str

    def told(self, prompt: Sequence[int], tokens: int, steps: int) -> str:
        return f"ends: {self.with_}"

    def came_true(self, found: Outcome, prompt: Sequence[int], tokens: int) -> bool:
        return not found.result.ran and self.with_ in found.result.error


@dataclass(frozen=True)
class Target(Form):
    """The target's own tokens are wrong."""

    def told(self, prompt: Sequence[int], tokens: int, steps: int) -> str:
        return "the target's tokens are wrong"

    def came_true(self, found: Outcome, prompt: Sequence[int], tokens: int) -> bool:
        return found.measured is not None and not found.target_right
