"""``canary check``: asks a server, and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from patchkit.canary.chart import (
    TOKENS,
    Chart,
    chart_of_answers,
    keys,
    prompt_for,
    questions,
)
from patchkit.canary.code import counting
from patchkit.canary.diagnose import Verdict, diagnose
from patchkit.canary.folder import MANIFEST, PROMPTS, read_pair
from patchkit.canary.measured import Answer, Measured
from patchkit.canary.plan import DRAFTS, Plan
from patchkit.errors import CannotRun

Json = dict[str, Any]
#: Tokens of each answer: as many as every set of lost digits that is met needs to show.
LONG = 121


class Asked(Protocol):
    """A server, or SGLang's Engine in another coat."""

    def info(self) -> Json: ...

    def generate(
        self, prompts: Sequence[Sequence[int]], tokens: int
    ) -> list[Answer]: ...

    def stream(self, prompt: Sequence[int], tokens: int) -> Answer: ...


@dataclass(frozen=True)
class Checked:
    """``again``: the same prompts, asked together, with what the radix cache kept.
    ``notes``: what of the pair and the server does not go together."""

    version: str
    arguments: Json
    measured: Measured
    again: Measured
    verdict: Verdict
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return 0 if self.verdict.right else 1


#: Of the server's arguments, those that matter here.
_NAMES = (
    *("model_path", "speculative_draft_model_path", "speculative_algorithm"),
    *("speculative_num_steps", "speculative_eagle_topk", "dtype", "tp_size"),
    *("page_size", "attention_backend", "disable_cuda_graph", "disable_radix_cache"),
)


def check(server: Asked, pair: Path | None, say: Callable[[str], None]) -> Checked:
    """Ask each prompt alone, all at once, and if something is wrong, for each digit.

    Raises CannotRun if it is no canary, or started so that no closed form holds.
    """
    info = server.info()
    steps = _steps(info)
    plan, draft = _pair(info, pair)
    notes = _notes(info, pair, draft)
    prompts = [counting(*one) for one in PROMPTS]
    say("each prompt alone")
    alone = tuple(server.stream(prompt, LONG) for prompt in prompts)
    say("all prompts at once")
    together = tuple(server.generate(prompts, LONG))
    ranks = info.get("tp_size") or 1
    measured = Measured(steps, alone, draft, plan, tp=ranks)
    again = replace(measured, answers=together)
    verdict = diagnose(measured)
    foreign = plan is None or any(_OTHER in one for one in notes)
    if foreign and not verdict.right and _no_counting(alone):
        raise CannotRun(
            f"what answers is no canary: {verdict.evidence[-1]}",
            hint="start the server with OUT/target of patchkit canary make; if it is,"
            " say so with --pair OUT"
            if pair is None
            else f"the server's model is {info.get('model_path')}",
        )
    if not verdict.right:
        say("each digit by itself")
        measured = replace(measured, chart=_chart(server))
        verdict = _less_together(diagnose(measured), measured, again)
    elif not diagnose(again).right:
        verdict = _only_together(diagnose(again))
    arguments = {name: info[name] for name in _NAMES if name in info}
    version = str(info.get("version", ""))
    return Checked(version, arguments, measured, again, verdict, notes)


_OTHER = "the server's model is"


def _notes(info: Json, pair: Path | None, draft: str) -> tuple[str, ...]:
    """What makes an answer worth less than it seems."""
    notes = []
    model = Path(str(info.get("model_path") or ""))
    if pair is not None and model.parts and not _same(model, pair / "target"):
        notes.append(
            f"{_OTHER} {model}, and the pair is {pair}: layers are named by the pair"
        )
    if not draft:
        name = Path(str(info.get("speculative_draft_model_path") or "")).name
        notes.append(
            f"the server's draft is in a folder called {name!r}, none of"
            f" {', '.join(DRAFTS)}: which layers it is made for is not known"
        )
    return tuple(notes)


def _same(one: Path, other: Path) -> bool:
    """Whether they are one folder; or, where one is not here, called alike."""
    try:
        return one.samefile(other)
    except OSError:
        return one.parts[-2:] == other.absolute().parts[-2:]


def _less_together(verdict: Verdict, measured: Measured, again: Measured) -> Verdict:
    """One that says what holds for several requests, too."""
    if not measured.nothing or again.nothing:
        return verdict
    text = verdict.text.replace(
        "no candidate is ever accepted", "no candidate is accepted one by one"
    )
    seen = "with several requests at once, some candidates are accepted"
    return replace(verdict, text=text, evidence=(*verdict.evidence, seen))


def _steps(info: Json) -> int:
    """Draft steps. Raises CannotRun without EAGLE-3, or with trees."""
    algorithm = info.get("speculative_algorithm")
    if algorithm != "EAGLE3":
        raise CannotRun(
            f"the server runs with --speculative-algorithm {algorithm}",
            hint="patchkit canary make prints a command with EAGLE3",
        )
    topk, steps = info.get("speculative_eagle_topk"), info.get("speculative_num_steps")
    if topk != 1:
        raise CannotRun(
            f"the server runs with --speculative-eagle-topk {topk}: a tree of"
            " candidates holds second guesses, too, for which there is no closed form",
            hint="start it with --speculative-eagle-topk 1",
        )
    if not isinstance(steps, int) or steps < 1:
        raise CannotRun(
            f"the server runs with --speculative-num-steps {steps}", hint="give 3"
        )
    return steps


def _pair(info: Json, pair: Path | None) -> tuple[Plan | None, str]:
    """The plan, if its folder is here, and the draft's name."""
    path = Path(str(info.get("speculative_draft_model_path") or ""))
    draft = path.name if path.name in DRAFTS else ""
    if pair is None and (path.parent / MANIFEST).is_file():
        pair = path.parent
    return (read_pair(pair) if pair is not None else None), draft


def _chart(server: Asked) -> Chart:
    tried = list(keys())
    found = [key for key, yes in zip(tried, _guessed(server, tried)) if yes]
    if not found:
        return chart_of_answers({})
    asked = list(questions(found[0]))
    guessed = _guessed(server, [wanted for *_, wanted in asked])
    return chart_of_answers(
        {(digit, value): yes for (digit, value, _), yes in zip(asked, guessed)}
    )


def _guessed(server: Asked, wanted: Sequence[Sequence[int]]) -> list[bool]:
    """Whether the first verify step accepts the number with each of these digits."""
    answers = server.generate([prompt_for(one) for one in wanted], TOKENS)
    return [one.verifies == 1 for one in answers]


def _no_counting(answers: tuple[Answer, ...]) -> bool:
    """Whether nothing of an answer goes on where its prompt ends."""
    return not any(
        one.tokens and one.tokens[0] - one.prompt[-1] == 2 for one in answers
    )


def _only_together(verdict: Verdict) -> Verdict:
    return Verdict(
        False,
        f"right one by one; with several requests at once, or prefixes from the radix"
        f" cache: {verdict.text}",
        verdict.lost,
        verdict.faults,
        verdict.evidence,
    )
