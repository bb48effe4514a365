"""Layer ids of the config against the layers that are really captured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from patchkit.draft import history
from patchkit.draft.evidence import Evidence, Json
from patchkit.draft.finding import Finding, Row, Severity
from patchkit.draft.formats import IDS

CHECK = "layers"
_SORT, _EMBEDDING, _KEEP = "sort-layer-ids", "embedding-capture", "keep-layer-ids"
#: Without it that recipe says what is wrong, and leaves it.
_OPTIONS = {_SORT: "-O order=asked"}


def judge(evidence: Evidence) -> Iterator[Finding | Row]:
    if not evidence.aux:
        yield Row(CHECK, skipped="a server captures no aux states: see algorithm")
        return
    if evidence.layers.get("failed", "x") or not evidence.layers["steps"]:
        yield Row(CHECK, skipped="the target can't be asked: see capture")
        return
    prefill = evidence.step(-1)
    if "has no set_eagle3" in prefill["error"]:
        yield Row(CHECK, skipped="the target has no capture: see capture")
        return
    yield from _named(evidence, prefill)
    yield from _prefill(evidence, prefill)
    yield from _graphs(evidence, prefill)
    yield from _convention(evidence)
    how = "" if prefill.get("ran") else "; as the setter says, not run"
    layers = _plain(prefill["captured"])
    yield Row(CHECK, f"what enters layers {layers}, in prefill and in graphs{how}")


def _named(evidence: Evidence, prefill: Json) -> Iterator[Finding]:
    """Where the ids come from."""
    ids = evidence.ids
    if not ids.place or (ids.read and ids.ids is None):
        yield Finding(
            CHECK,
            "default-layers",
            Severity.WARNING,
            "config.json names no layer ids, so the default layers are taken:"
            f" {_plain(prefill['captured'] or prefill['asked'])}",
            ("eagle_config.eagle_aux_hidden_state_layer_ids is what SGLang reads",),
            todo="compare them with those that the draft was trained on",
        )
    elif not ids.read:
        told = "" if evidence.kind.outputs else " (counted from in front of a layer)"
        yield (
            Finding(
                CHECK,
                "ids-not-read",
                Severity.ERROR,
                f"{ids.place} names layers {_plain(ids.ids)}{told}, but SGLang reads"
                " eagle_config only, and takes the default layers",
                (f"captured: {_plain(prefill['captured'])}",),
                todo=f"move them into eagle_config, as {IDS}",
                outcome="layers",
            )
            if _differ(evidence, prefill)
            else Finding(
                CHECK,
                "ids-not-read",
                Severity.WARNING,
                f"{ids.place} is not read; the default layers happen to be the same",
            )
        )
    elif not evidence.tree.mentions("eagle_config"):
        yield Finding(
            CHECK,
            "ids-not-read",
            Severity.ERROR,
            f"this release reads no eagle_config: {_plain(ids.ids)} are ignored",
            releases="0.4.6 - 0.4.8.post1",
            todo="use 0.4.9 or newer",
            outcome="layers",
        )


def _differ(evidence: Evidence, prefill: Json) -> bool:
    ids = evidence.ids.ids
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        return True
    shift = 1 if evidence.kind.outputs else 0
    return [one + shift for one in ids] != list(prefill["captured"] or [])


def _prefill(evidence: Evidence, prefill: Json) -> Iterator[Finding]:
    asked, captured = prefill["asked"], prefill["captured"]
    error = prefill["error"]
    if not error and captured == asked:
        return
    ids = evidence.ids.ids if evidence.ids.read else None
    code, text, todo, recipe = _cause(evidence, ids, asked, captured)
    lines = [f"ids: {_plain(ids)}; layers asked for: {_plain(asked)}"]
    lines.append(f"a prefill: {error}" if error else f"captured: {_plain(captured)}")
    yield Finding(
        CHECK,
        code,
        Severity.ERROR,
        text,
        tuple(lines),
        _releases(code, evidence),
        todo,
        recipe,
        "stops:capture" if error else "layers",
        _OPTIONS.get(recipe, ""),
    )


def _cause(
    evidence: Evidence, ids: Any, asked: Sequence[int] | None, captured: Any
) -> tuple[str, str, str, str]:
    """Code, text, what to do, recipe."""
    if ids is not None and not (
        isinstance(ids, list) and ids and all(type(one) is int for one in ids)
    ):
        return (
            "ids-malformed",
            f"the layer ids are no list of numbers: {ids!r:.40}",
            "write them as a list: [1, 29, 57]",
            "",
        )
    asked = asked or []
    depth = evidence.depth or 0
    if isinstance(ids, list) and any(one < 0 for one in ids):
        return (
            "negative-id",
            "id -1, the embedding's output, is not captured",
            "from 0.5.14 id 0 is the embedding, if the first id is not 1",
            _EMBEDDING,
        )
    if any(layer >= depth for layer in asked):
        return (
            "unreachable-layer",
            f"layer {max(asked)} is behind the last of {depth}: states are captured in"
            " front of a layer, so the last one's output is out of reach",
            f"train on layers up to {depth - 2}",
            "",
        )
    if len(set(asked)) < len(asked):
        return (
            "duplicate-ids",
            f"{len(asked)} ids name {len(set(asked))} layers: each is captured once",
            "name different layers, as many as fc takes",
            "",
        )
    if captured == sorted(asked):
        return (
            "unsorted-ids",
            "states are captured in the order of layers, not of ids: fc gets them"
            " swapped",
            "sort the ids, and the columns of fc.weight with them",
            _SORT,
        )
    return ("not-captured", "not all of the layers are captured", "choose others", "")


def _releases(code: str, evidence: Evidence) -> str:
    return "0.5.4.post2 - 0.5.23" if code != "ids-malformed" else "all"


def _graphs(evidence: Evidence, prefill: Json) -> Iterator[Finding]:
    if len(evidence.tree.setters) < 2:
        return
    graphs = evidence.step(0)
    if graphs["captured"] == prefill["captured"] or prefill["error"]:
        return
    yield Finding(
        CHECK,
        "graphs-differ",
        Severity.ERROR,
        f"CUDA graphs capture layers {_plain(graphs['captured'])}, prefill"
        f" {_plain(prefill['captured'])}",
        (
            "the graph runner calls the setter without ids before the draft's are"
            " passed, so decode and verify replay the default layers",
        ),
        history.GRAPHS_FIRST,
        "use 0.5.11 or newer, or --disable-cuda-graph",
        _KEEP,
        "layers",
    )


def _convention(evidence: Evidence) -> Iterator[Finding]:
    """The same ids mean other layers elsewhere."""
    ids = evidence.ids.ids
    plain = isinstance(ids, list) and ids and all(type(one) is int for one in ids)
    if not plain or not evidence.ids.read or evidence.prefills is None:
        return
    if ids[0] == 1:
        return
    yield Finding(
        CHECK,
        "first-id-rule",
        Severity.WARNING,
        f"ids {_plain(ids)} are layers {_plain([one + 1 for one in ids])} up to"
        f" 0.5.12.post1, and {_plain(ids)} from 0.5.13 on",
        (
            f"{history.ALWAYS_PLUS_ONE}: always one more;"
            f" {history.FIRST_ID_RULE}: only if the first id is 1",
            f"this tree captures {_plain(evidence.step(-1)['captured'])}",
        ),
        history.FIRST_ID_RULE,
        "serve it with the release that it was trained for, or change the ids",
    )


def _plain(layers: Any) -> str:
    if not isinstance(layers, list):
        return "none" if layers is None else f"{layers!r:.30}"
    return ",".join("?" if one is None else str(one) for one in layers) or "none"
