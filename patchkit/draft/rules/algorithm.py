"""The algorithm that the server is started with, against what the draft takes."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import Finding, Row, Severity

CHECK = "algorithm"


def judge(evidence: Evidence) -> Iterator[Finding | Row]:
    if not evidence.built:
        yield Row(CHECK, skipped="the class was not built: see architecture")
        return
    name = evidence.build["built"]
    takes = evidence.attributes["captures"]
    error = evidence.shared.get("error", "")
    if evidence.eagle3 and not takes and not evidence.assumed:
        yield _error(
            "not-eagle3",
            f"{name} takes one state of the target, not EAGLE3's several",
            (f"at the server's start: {error}",) if error else (),
            "start the server with --speculative-algorithm EAGLE",
            "stops:share" if error else "stops:draft",
        )
    elif not evidence.eagle3 and takes:
        yield _one_state(evidence, name)
    elif error and not evidence.assumed:
        yield _error(
            "not-shared",
            f"{name} does not take the target's embedding: {error}",
            (),
            "see the error",
            "stops:share",
        )
    if evidence.eagle3 and not evidence.aux and evidence.kind.aux:
        yield _error(
            "aux-off",
            "eagle_config.use_aux_hidden_state is false: the target hands over one"
            " state, and fc, made for several, "
            + ("is skipped" if _skips(evidence) else "gets less"),
            (),
            "set it to true, or leave it out",
            "fc-skipped" if _skips(evidence) else "stops:draft",
            "fc-guard",
        )
    yield Row(CHECK, f"{evidence.algorithm} is what {name} is for")


def _skips(evidence: Evidence) -> bool:
    """Whether fc is left out for one state of the target: as the class itself says;
    where it can't, if widths are equal."""
    hidden, shape = evidence.hidden, evidence.attributes["fc"]
    entered = evidence.build["fc_for"].get(str(hidden))
    if entered is not None:
        return bool(entered == "skipped")
    return shape is not None and bool(hidden == shape[0])


def _one_state(evidence: Evidence, name: str) -> Finding:
    hidden, shape = evidence.hidden, evidence.attributes["fc"]
    equal = _skips(evidence)
    return _error(
        "not-eagle",
        f"{evidence.algorithm} hands over one state of the target, and {name} takes"
        " several: " + ("widths match, and fc is skipped" if equal else "fc gets less"),
        (f"fc takes {shape[1]}, given {hidden}",) if shape else (),
        "start the server with --speculative-algorithm EAGLE3",
        "fc-skipped" if equal else "stops:draft",
        "fc-guard" if equal else "",
    )


def _error(code: str, text: str, lines: tuple[str, ...], todo: str, outcome: str,
           recipe: str = "") -> Finding:  # fmt: skip
    return Finding(
        CHECK, code, Severity.ERROR, text, lines, "all", todo, recipe, outcome
    )
