"""Evidence about checkpoints: which questions are asked of a tree, and the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from patchkit.draft import names
from patchkit.draft.ask import Asker, Request
from patchkit.draft.checkpoint import Checkpoint
from patchkit.draft.evidence import Evidence
from patchkit.draft.formats import (
    first_class,
    flattened,
    language_fields,
    layer_ids,
    number,
    recognise,
)
from patchkit.draft.maps import find_map
from patchkit.draft.tree import Tree

#: Language models inside of wrappers, by the model_type of their configuration.
_INNER = {"deepseek_v3": "DeepseekV3ForCausalLM", "kimi_k2": "DeepseekV3ForCausalLM"}
#: The targets whose capture is run in miniature.
_MINIATURE = "deepseek_v2"
_STATES = 17
#: Deeper targets than any there is are not run.
_DEEPEST = 256


@dataclass(frozen=True)
class Case:
    """``against``: the target's config.json. ``algorithm``: EAGLE3 or EAGLE."""

    checkpoint: Checkpoint
    against: Mapping[str, Any]
    algorithm: str = "EAGLE3"


@dataclass(frozen=True)
class Questions:
    """What is asked about one checkpoint, target and tree: requests by kind."""

    build: list[dict[str, Any]]
    target: dict[str, Any] | None
    capture: dict[str, Any] | None

    def by_kind(self) -> dict[str, list[dict[str, Any]]]:
        return {
            "draft": self.build,
            "capture": [self.capture] if self.capture else [],
            "target": [self.target] if self.target else [],
        }


def questions(tree: Tree, case: Case) -> Questions:
    checkpoint, against, algorithm = case.checkpoint, case.against, case.algorithm
    kind = recognise(checkpoint.config, checkpoint.tensors)
    target = language_fields(against)
    shape = number(target, "vocab_size"), number(target, "hidden_size")
    common = {
        "kind": "build",
        "entries": dict(tree.entries),
        "algorithm": algorithm,
        "tensors": [[t.name, t.dtype, t.shape] for t in checkpoint.tensors.values()],
        "values": _values(checkpoint),
        "renamings": names.candidates(list(checkpoint.tensors)),
        "embedding": None if None in shape else shape,
        # of as many states as a draft may be made for
        "widths": [count * (shape[1] or 0) for count in range(1, _STATES)],
    }
    build = [{**common, "config": checkpoint.config, "instead": ""}]
    if kind.wanted in tree.entries:
        fields = flattened(checkpoint.config, kind)
        build.append({**common, "config": fields, "instead": kind.wanted})
    ids = layer_ids(checkpoint.config)
    given = ids.ids if ids.read and tree.mentions("eagle_config") else None
    steps = [None if which == "default" else given for which in tree.setters] or [given]
    # a patched setter that is called without ids may look the draft's up
    looked_up = None in steps and isinstance(given, list)
    asked = {"steps": steps, "ids": given if looked_up else None}
    name = first_class(against)
    if name not in tree.entries:
        return Questions(build, None, None)
    inner = _inner(tree, against, target)
    request = {
        "kind": "target",
        "module": tree.entries[name],
        "name": name,
        "config": dict(against),
        "inner": inner,
        **asked,
    }
    module = inner[0] if inner else tree.entries[name]
    depth = number(target, "num_hidden_layers")
    capture = None
    if module == _MINIATURE and depth and depth <= _DEEPEST and algorithm == "EAGLE3":
        capture = {"kind": "capture", "layers": depth, **asked}
    return Questions(build, request, capture)


def _values(checkpoint: Checkpoint) -> dict[str, list[float]]:
    found = find_map(checkpoint, "d2t")
    if found is None or found.values is None:
        return {}
    return {found.tensor.name: list(found.values)}


def _inner(
    tree: Tree, against: Mapping[str, Any], target: Mapping[str, Any]
) -> list[Any] | None:
    """Module, class and fields of the language model that the target's class wraps."""
    if target == against:
        return None
    name = first_class(target)
    if name not in tree.entries:
        name = _INNER.get(str(target.get("model_type")), "")
    return [tree.entries[name], name, dict(target)] if name in tree.entries else None


def gather(
    asker: Asker, tree: Tree, version: str, cases: Mapping[str, Case]
) -> dict[str, Evidence]:
    """Evidence of each case, all of them asked at once: by kind of question, a process
    each, side by side."""
    wanted = {name: questions(tree, case) for name, case in cases.items()}
    batches: dict[str, list[Request]] = {"draft": [], "capture": [], "target": []}
    places: dict[str, list[str]] = {kind: [] for kind in batches}
    for name, one in wanted.items():
        for kind, requests in one.by_kind().items():
            batches[kind] += requests
            places[kind] += [name] * len(requests)
    told = asker.ask({kind: asked for kind, asked in batches.items() if asked})
    answers: dict[str, dict[str, list[Any]]] = {name: {} for name in cases}
    for kind, found in told.items():
        for name, answer in zip(places[kind], found):
            answers[name].setdefault(kind, []).append(answer)
    evidence = {
        name: assemble(tree, version, case, answers[name])
        for name, case in cases.items()
    }
    return evidence | _second(asker, wanted, evidence)


def _second(
    asker: Asker, wanted: Mapping[str, Questions], evidence: Mapping[str, Evidence]
) -> dict[str, Evidence]:
    """Of those for which there are names still to try."""
    more = {name: second_names(one) for name, one in evidence.items()}
    again = {name: one for name, one in more.items() if one is not None}
    requests = [
        {
            **wanted[name].build[1 if evidence[name].assumed else 0],
            "renamings": [{}, renaming],
        }
        for name, renaming in again.items()
    ]
    found = asker.ask({"names": requests})["names"] if requests else []
    return {
        name: with_names(evidence[name], renaming, answer)
        for (name, renaming), answer in zip(again.items(), found)
    }


def assemble(
    tree: Tree, version: str, case: Case, answers: Mapping[str, Sequence[Any]]
) -> Evidence:
    """The evidence, with the best of the renamings that were tried at once."""
    checkpoint, against = case.checkpoint, case.against
    kind = recognise(checkpoint.config, checkpoint.tensors)
    asked = answers["draft"][0]
    build, assumed = asked, ""
    is_draft = asked["asked"] in tree.drafts
    if len(answers["draft"]) > 1 and not is_draft:
        build, assumed = answers["draft"][1], kind.wanted
    fields = flattened(checkpoint.config, kind)
    target = language_fields(against)
    renaming: Mapping[str, str] = {}
    renamed = None
    if not build["failed"]:
        tried = names.candidates(list(checkpoint.tensors))
        scores = [names.score(load) for load in build["loads"]]
        best = scores.index(min(scores))
        if scores[best] < scores[0]:
            renaming, renamed = tried[best], build["loads"][best]
    no_answer = {"failed": "class", "error": "", "where": "", "steps": []}
    return Evidence(
        checkpoint=checkpoint,
        kind=kind,
        config=checkpoint.config,
        fields=fields,
        target=target,
        target_class=first_class(against),
        wrapper=target != against,
        algorithm=case.algorithm,
        version=version,
        tree=tree,
        ids=layer_ids(checkpoint.config),
        asked=asked,
        build=build,
        assumed=assumed,
        layers=answers.get("target", [no_answer])[0],
        prefills=answers.get("capture", [None])[0],
        d2t=find_map(checkpoint, "d2t"),
        t2d=find_map(checkpoint, "t2d"),
        renaming=renaming,
        renamed=renamed,
    )


def second_names(evidence: Evidence) -> Mapping[str, str] | None:
    """Names to try once it is known what stays dropped; ``None``: there are none."""
    if not evidence.built or evidence.load.get("failed"):
        return None
    load = evidence.renamed or evidence.load
    shapes = {one.name: one.shape for one in evidence.checkpoint.tensors.values()}
    if not load["unwritten"] or not load["dropped"]:
        return None
    found = names.guesses(load, evidence.build, evidence.renaming, shapes)
    return found if dict(found) != dict(evidence.renaming) else None


def with_names(
    evidence: Evidence, renaming: Mapping[str, str], answer: Mapping[str, Any]
) -> Evidence:
    """The evidence with ``renaming``, if that is better than what there was."""
    load = answer["loads"][1]
    if names.score(load) >= names.score(evidence.renamed or evidence.load):
        return evidence
    return replace(evidence, renaming=renaming, renamed=load)
