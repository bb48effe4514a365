"""What an engine job found, as the canary's own diagnosis takes it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from patchkit.canary.chart import chart_of_candidates
from patchkit.canary.measured import Answer, Measured
from patchkit.canary.plan import DRAFTS, Plan
from patchkit.canary.states import Pass, States, read_states
from patchkit.verify import pair
from patchkit.verify.jobs import Result

#: SGLang's names of the histogram: index is the number of accepted draft tokens.
HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")


def measured(
    result: Result, variant: pair.Variant, plan: Plan | None = None
) -> Measured:
    """``plan``: of a pair that is not the checks' own. Calls that raised are left
    out."""
    answers: list[Answer] = []
    guesses: list[tuple[int, int]] = []
    for one in variant.generate:
        entry = result.calls().get(one.name, {})
        lines = verifications(entry)
        found = [
            _answer(prompt, output, lines if len(one.prompts) == 1 else [])
            for prompt, output in zip(one.prompts, entry.get("outputs", ()))
        ]
        answers += found
        guesses += _first_candidates(lines)
    return Measured(
        pair.STEPS,
        tuple(answers),
        variant.draft,
        plan or pair.plan(),
        chart_of_candidates(guesses) if guesses else None,
        variant.tp,
        states(result, variant, plan),
    )


def states(
    result: Result, variant: pair.Variant, plan: Plan | None = None
) -> States | None:
    """That the draft was handed, on every rank, as far as they were seen."""
    plan = plan or pair.plan()
    names = {one.name for one in variant.generate}
    passes = [
        Pass.read(told, rank)
        for call, entry in result.calls().items()
        if call in names
        for rank, lines in enumerate(entry.get("ranks", {}).values())
        for line in lines
        for told in line.get("handed", ())
    ]
    layers = DRAFTS[variant.draft].layers(plan)
    return read_states(passes, plan, layers, variant.tp)


def verifications(call: Mapping[str, Any], rank: int = 0) -> list[dict[str, Any]]:
    """Of one rank, as many as the answers had together: where the scheduler overlaps,
    one more may follow, of which nothing comes. On a busy machine the requests of a
    batch may begin one after another."""
    ranks = list(call.get("ranks", {}).values())
    left = sum(one["meta"].get("spec_verify_ct", 0) for one in call.get("outputs", ()))
    found = []
    for line in ranks[rank] if ranks[rank:] else ():
        if left <= 0:
            break
        found.append(line)
        left -= len(line["accepted"])
    return found


def histogram(output: Mapping[str, Any]) -> list[int] | None:
    """As SGLang reports it, with the zeros at its end, which it leaves out; ``None`` up
    to 0.5.8, which does not."""
    for name in HISTOGRAMS:
        found: list[int] | None = output["meta"].get(name)
        if found is not None:
            return found + [0] * (pair.STEPS + 1 - len(found))
    return None


def _answer(
    prompt: Sequence[int], output: Mapping[str, Any], lines: Sequence[Any]
) -> Answer:
    return Answer(
        tuple(prompt),
        tuple(output["ids"]),
        int(output["meta"].get("spec_verify_ct", 0)),
        tuple(histogram(output) or ()),
        tuple(line["accepted"][0] for line in lines),
    )


def _first_candidates(lines: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """And what the target says there; candidate 0 is the token that is known."""
    for line in lines:
        for candidates, target in zip(line["candidates"], line["target"]):
            yield candidates[1], target[0]
