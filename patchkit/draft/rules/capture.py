"""The target can capture, and shares what a draft needs, at all."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.draft import history
from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import Finding, Row, Severity

CHECK = "capture"
SETTER = "set_eagle3_layers_to_capture"
SHARES = "get_embed_and_head"


def judge(evidence: Evidence) -> Iterator[Finding | Row]:
    answer, name = evidence.layers, evidence.target_class
    if not evidence.eagle3:
        yield Row(CHECK, skipped=f"{evidence.algorithm} captures no aux states")
        return
    if name not in evidence.tree.entries:
        yield Finding(
            CHECK,
            "target-missing",
            Severity.ERROR,
            f"the target's class, {name or 'none'}, is not in this tree",
            todo="--against must be the model that this SGLang is to serve",
            outcome="stops:target",
        )
        yield Row(CHECK)
        return
    if answer["failed"]:
        yield Finding(
            CHECK,
            "target-not-built",
            Severity.WARNING,
            f"{name} could not be built to be asked: {answer['error']}",
            (f"in {answer['where']}",) if answer["where"] else (),
            todo="is --against a whole config.json? The checks of layers and fc were"
            " not made",
        )
        yield Row(CHECK, skipped="the target was not built")
        return
    missing = [one for one in (SHARES, SETTER) if one not in answer["methods"]]
    if missing:
        yield _lacking(evidence, name, missing)
    yield Row(CHECK, f"{name} has {SETTER}")


def _lacking(evidence: Evidence, name: str, missing: list[str]) -> Finding:
    wrapper = evidence.wrapper
    if wrapper:
        why = "it wraps a language model, and does not hand the call on"
        recipe = "kimi-k25-eagle3" if name.startswith("KimiK25") else ""
        releases = history.NO_DELEGATES if recipe else "all"
        todo = "use 0.5.10 or newer" if recipe else "serve the language model itself"
    else:
        why = "this release captures no aux states of this model"
        deepseek = evidence.tree.entries[name] == "deepseek_v2"
        recipe = "aux-capture" if deepseek else ""
        releases = history.NO_CAPTURE if deepseek else "all"
        todo = "use 0.5.4.post2 or newer" if deepseek else "choose another target"
    return Finding(
        CHECK,
        "no-capture",
        Severity.ERROR,
        f"{name} has no {' and no '.join(missing)}",
        (why, "a server ends at its start with an AttributeError"),
        releases,
        todo,
        recipe,
        "stops:share" if SHARES in missing else "stops:capture",
    )
