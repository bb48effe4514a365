"""The width of fc against the states that the target hands over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchkit.draft import history
from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import Finding, Row, Severity

CHECK = "fc"


def judge(evidence: Evidence) -> Iterator[Finding | Row]:
    if not evidence.built:
        yield Row(CHECK, skipped="the class was not built: see architecture")
        return
    shape = evidence.attributes["fc"]
    if shape is None:
        yield Row(CHECK, skipped=f"{evidence.build['built']} has no fc")
        return
    wrong = [*_shape(evidence, shape), *_embedding(evidence)]
    yield from wrong
    count = _states(evidence)
    if wrong:
        yield Row(CHECK)
    elif not evidence.aux or not evidence.kind.aux:
        yield Row(CHECK, skipped="no aux states: see algorithm")
    elif count is None or evidence.hidden is None:
        yield Row(CHECK, skipped="how many states there are is not known: see layers")
    else:
        yield from _given(evidence, shape[1], count, evidence.hidden)
        yield Row(CHECK, f"takes {shape[1]}, given {count} states of {evidence.hidden}")


def _states(evidence: Evidence) -> int | None:
    step = evidence.step(-1)
    return None if step["captured"] is None else len(step["captured"])


def _shape(evidence: Evidence, shape: list[int]) -> Iterator[Finding]:
    """The checkpoint's fc against the class's."""
    states = evidence.attributes["aux_states"] or 3
    each = shape[1] // states
    for name, said in evidence.load["errors"].items():
        if not name.endswith("fc.weight"):
            continue
        given = evidence.checkpoint.tensors[name]
        todo, releases = _mend(evidence, given.shape, each, states)
        yield Finding(
            CHECK,
            "fc-shape",
            Severity.ERROR,
            f"{name} is {given.shown}, where {evidence.build['built']} has"
            f" {shape[0]}x{shape[1]}: {states} states of {each}",
            (said["error"],),
            releases,
            todo,
            outcome="stops:load",
        )


def _mend(
    evidence: Evidence, given: Sequence[int], each: int, states: int
) -> tuple[str, str]:
    """What to do about an fc of another shape, and in which releases it is wrong."""
    width, hidden = given[-1] if given else 0, evidence.hidden or 0
    if hidden and each != hidden and width == states * hidden:
        return f'set "target_hidden_size": {hidden} in config.json', "all"
    wanted = width // each if each and width % each == 0 else states
    if wanted == states:
        return "the draft was trained for another target", "all"
    if evidence.attributes["aux_states"] is None:
        return (
            f"fc is for {wanted} states; this release takes 3, always:"
            " use 0.5.12 or newer, or another draft",
            history.THREE_STATES,
        )
    return (
        f"fc is for {wanted} states: name {wanted} layer ids in eagle_config, or set"
        f' "num_aux_hidden_states": {wanted}',
        "all",
    )


def _embedding(evidence: Evidence) -> Iterator[Finding]:
    """The target's embedding in place of the draft's must be as wide."""
    own = evidence.attributes["embedding"]
    hidden = evidence.hidden
    if not evidence.shared["embed"] or own is None or hidden is None:
        return
    if own[1] != hidden:
        yield Finding(
            CHECK,
            "embedding-width",
            Severity.ERROR,
            f"the target's embedding, {hidden} wide, takes the place of the draft's,"
            f" {own[1]} wide",
            ("config.json has no target_hidden_size, so both count as equal",),
            todo=f'set "target_hidden_size": {hidden} in config.json',
            outcome="stops:draft",
        )


def _given(
    evidence: Evidence, takes: int, count: int, hidden: int
) -> Iterator[Finding]:
    width = count * hidden
    # what the class says of itself; where it can't, by the rule of all of them
    embedding = hidden if evidence.shared["embed"] else None
    if embedding is None and evidence.attributes["embedding"]:
        embedding = evidence.attributes["embedding"][1]
    entered = evidence.build["fc_for"].get(str(width))
    if width == takes and (entered or "applied") == "applied" and width != embedding:
        return
    said = evidence.fields.get("target_hidden_size")
    lines = [f"captured: {count} states of {hidden}; fc takes {takes}"]
    if isinstance(said, int) and said != hidden:
        lines.append(f"target_hidden_size is {said}, the target's hidden_size {hidden}")
        todo = f"set target_hidden_size to {hidden}, if fc.weight has that width"
    else:
        todo = "name as many layer ids as fc takes, each a different layer"
    if entered == "skipped" or (entered is None and width == embedding):
        yield Finding(
            CHECK,
            "fc-skipped",
            Severity.ERROR,
            f"{width} is also the embedding's width, so fc is skipped without a word",
            tuple(lines),
            "all",
            todo,
            "fc-guard",
            "fc-skipped",
        )
        return
    if entered not in (None, "applied"):
        lines.append(f"the draft refuses it: {entered}")
    yield Finding(
        CHECK,
        "fc-input",
        Severity.ERROR,
        f"fc takes {takes} numbers a token, and is given {width}",
        tuple(lines),
        todo=todo,
        recipe="fc-guard",
        outcome="stops:draft",
    )
