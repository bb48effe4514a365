"""Every tensor is consumed, every parameter written, shapes are equal."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from patchkit.draft import history, names
from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import Finding, Row, Severity, listed

CHECK = "weights"
GUARD = "weight-guard"
#: Written by a trainer, needed by no server.
_HARMLESS = ("rotary_emb.inv_freq", "t2d", "verifier_lm_head.weight",
             "verifier_norm.weight")  # fmt: skip


def judge(evidence: Evidence) -> Iterator[Finding | Row]:
    if not evidence.built:
        yield Row(CHECK, skipped="the class was not built: see architecture")
        return
    load = evidence.load
    if load.get("failed"):
        yield Finding(
            CHECK,
            "load-fails",
            Severity.ERROR,
            f"load_weights raises: {load['error']}",
            (f"in {load['where']}",),
            todo="look at the tensors' names: one that it needs is missing",
            outcome="stops:load",
        )
        yield Row(CHECK)
        return
    yield from _mismatched(evidence)
    yield from _cut(evidence)
    lost = [n for n in load["dropped"] if not n.endswith(_HARMLESS)]
    head = [n for n in lost if n.endswith("lm_head.weight")]
    if head and evidence.shared["head"]:
        yield _note("head-unused", "lm_head.weight is not read: the target's is used")
        lost = [n for n in lost if n not in head]
    embedding = [n for n in lost if n.endswith("embed_tokens.weight")]
    if embedding and evidence.shared["embed"]:
        lost = [n for n in lost if n not in embedding]
    if lost:
        yield _dropped(evidence, lost)
    yield from _unwritten(evidence, lost)
    count = len(load["dropped"])
    total = len(evidence.checkpoint.tensors)
    never = " (t2d never is)" if evidence.t2d is not None and count == 1 else ""
    name = evidence.build["built"]
    yield Row(
        CHECK,
        f"{total - count} of {total} tensors are read{never}, and every parameter of"
        f" {name} is written",
    )


def _mismatched(evidence: Evidence) -> Iterator[Finding]:
    errors = {
        name: said
        for name, said in evidence.load["errors"].items()
        if not name.endswith("fc.weight")
    }
    if not errors:
        return
    shapes = evidence.checkpoint.tensors
    lines = [
        f"{name} is {shapes[name].shown}: {said['error']}"
        for name, said in errors.items()
    ]
    yield Finding(
        CHECK,
        "shape-mismatch",
        Severity.ERROR,
        f"{listed(list(errors), 2)}: the shape does not fit config.json",
        tuple(lines[:6]),
        todo="config.json and the tensors are of different drafts, or the vocabulary"
        " or head sizes in it are wrong",
        outcome="stops:load",
    )


def _cut(evidence: Evidence) -> Iterator[Finding]:
    """Loaders of fused parameters take the rows that they want, and ask no more."""
    cut = evidence.load["cut"]
    if not cut:
        return
    shapes = evidence.checkpoint.tensors
    yield Finding(
        CHECK,
        "shape-cut",
        Severity.ERROR,
        f"{listed(list(cut), 2)}: only a part of it is read, without a word",
        tuple(
            f"{name} is {shapes[name].shown}: {count} of {prod(shapes[name].shape)}"
            " elements are read"
            for name, count in list(cut.items())[:6]
        ),
        todo="mend head_dim, num_attention_heads, num_key_value_heads or"
        " intermediate_size in config.json",
        outcome="dropped",
    )


def _dropped(evidence: Evidence, lost: list[str]) -> Finding:
    lines = [f"dropped: {listed(lost)}"]
    # a parameter that nothing else supplies
    left = _missing(evidence)
    if left:
        lines.append(f"never written: {listed(left, 3)}")
    releases, todo = "all", "rename them, or train without them"
    renaming = {k: v for k, v in evidence.renaming.items() if k in lost}
    if renaming and evidence.renamed is not None:
        still = [n for n in evidence.renamed["dropped"] if n in lost]
        shown = names.shown(renaming)
        lines += [f"renamed, they fit: {one}" for one in shown[:4]]
        todo = "--fix-names OUT_DIR writes a copy with these names"
        if still:
            todo += f"; {listed(still, 2)} stays unknown"
        if any(one.startswith("layers.0.") for one in shown):
            releases = history.ONLY_MIDLAYER
    elif all("fc_norm" in n or "aux_norm" in n for n in lost):
        releases = "before 0.5.12, or where config.json lacks fc_norm"
        todo = 'use 0.5.12 or newer with "fc_norm": true in config.json'
    total = len(evidence.checkpoint.tensors)
    return Finding(
        CHECK,
        "names-dropped",
        Severity.ERROR,
        f"{len(lost)} of {total} tensors are dropped without a word:"
        f" {evidence.build['built']} does not know their names",
        tuple(lines),
        releases,
        todo,
        GUARD,
        "dropped",
    )


def _missing(evidence: Evidence) -> list[str]:
    """Parameters that neither the checkpoint nor the target fills."""
    unwritten = evidence.load["unwritten"]
    refused = {_parameter(n) for n in evidence.load["errors"]}
    found = []
    for name in unwritten:
        if name.endswith("embed_tokens.weight") and evidence.shared["embed"]:
            continue
        if name.endswith("lm_head.weight") and evidence.shared["head"]:
            continue
        if _parameter(name) not in refused:
            found.append(name)
    return found


def _parameter(name: str) -> str:
    """Of a tensor the parameter that it is a part of, more or less."""
    name = name.removeprefix("model.").replace("layers.0.", "midlayer.")
    for part, whole in (
        *((f".{one}_proj.", ".qkv_proj.") for one in "qkv"),
        *((f".{one}_proj.", ".gate_up_proj.") for one in ("gate", "up")),
    ):
        name = name.replace(part, whole)
    return name


def _unwritten(evidence: Evidence, lost: list[str]) -> Iterator[Finding]:
    left = _missing(evidence)
    shared = evidence.shared
    embedding = next(
        (n for n in evidence.load["unwritten"] if n.endswith("embed_tokens.weight")), ""
    )
    if embedding and shared["embed"]:
        yield _note("embedding-shared", "no embed_tokens.weight: the target's is used")
    if evidence.attributes["head_from_target"] and shared["head"]:
        yield _note("head-shared", "draft_vocab_size is null: the target's lm_head is"
                    " used")  # fmt: skip
    if lost and evidence.renamed is not None:
        # a renaming that fills them is what is to be done
        left = [name for name in left if name in evidence.renamed["unwritten"]]
    if "lm_head.weight" in left:
        left.remove("lm_head.weight")
        if evidence.eagle3 and not evidence.attributes["captures"]:
            return  # a head of EAGLE-1 or -2, which is never alone: see algorithm
        yield Finding(
            CHECK,
            "head-missing",
            Severity.ERROR,
            "no lm_head.weight, and the target's is not used: the head stays random",
            ("draft_vocab_size is set, so this release expects the draft's own head",),
            "all",
            "if the draft was trained with the target's head, set draft_vocab_size to"
            " null (0.5.2 or newer); else the checkpoint is not whole",
            GUARD,
            "unwritten",
        )
    if not left:
        return
    if any(name.endswith("embed_tokens.weight") for name in left):
        text = "no embed_tokens.weight, and the target's does not take its place"
        todo = (
            "target_hidden_size differs from hidden_size in config.json, so the draft"
            " needs an embedding of its own"
        )
    else:
        text = f"{len(left)} parameters are never written and stay random"
        todo = "the checkpoint is not whole, or config.json asks for more than it has"
    yield Finding(
        CHECK, "unwritten", Severity.ERROR, text, tuple(left[:6]), "all", todo, GUARD,
        "unwritten",
    )  # fmt: skip


def _note(code: str, text: str) -> Finding:
    return Finding(CHECK, code, Severity.NOTE, text)
