"""``architectures`` resolves to a draft class in this tree, which takes the config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchkit.draft import history
from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import Finding, Row, Severity
from patchkit.draft.formats import first_class

CHECK = "architecture"


def judge(evidence: Evidence) -> Iterator[Finding | Row]:
    given = evidence.config.get("architectures")
    # what the tree's own rewriting makes of it, if it came so far
    name = evidence.asked["asked"] or first_class(evidence.config)
    problem = None
    if given and not _is_list_of_text(given):
        problem = _error(
            "architectures-malformed",
            f"architectures is {given!r:.60}, no list of class names",
            todo=_name_it(evidence),
            outcome="stops:class",
        )
    elif not name:
        problem = _error(
            "no-architecture",
            "config.json names no architectures",
            todo=_name_it(evidence),
            outcome="stops:class",
        )
    elif name not in evidence.tree.entries:
        problem = _lacking(evidence, name)
    elif name not in evidence.tree.drafts:
        problem = _error(
            "not-a-draft",
            f"{name} is no draft class: it never looks at the states that the target"
            " hands over",
            evidence=(f"the checkpoint looks like {evidence.kind.text}",),
            todo=_name_it(evidence),
            outcome=_end(evidence),
        )
    if problem is not None:
        yield problem
    kind = repr(evidence.config.get("model_type"))[:40]
    if not evidence.asked["type_known"] and not evidence.assumed:
        yield Finding(
            CHECK,
            "model-type",
            Severity.WARNING,
            f"transformers knows no model_type {kind}",
            ("it was read as plain fields here; a server may refuse to start",),
            todo='set "model_type": "llama", or start it with --trust-remote-code',
        )
    if evidence.build["failed"] in ("config", "build"):
        yield _not_built(evidence)
    if problem is None:
        yield Row(CHECK, f"{name}, in models/{evidence.tree.entries[name]}.py")
    else:
        yield Row(CHECK)


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _end(evidence: Evidence) -> str:
    """Where a server with the class that config.json names would stop."""
    asked = evidence.asked
    if asked["failed"]:
        return f"stops:{asked['failed']}"
    load = asked["loads"][0]
    if load.get("failed") or load["errors"]:
        return "stops:load"
    return "stops:share" if (asked["shared"] or {}).get("error") else "dropped"


def _lacking(evidence: Evidence, name: str) -> Finding:
    first = history.CLASSES.get(name)
    said = (
        f"{name} is not in this tree; SGLang has it from {first} on"
        if first
        else f"no class of this tree, nor of any release up to 0.5.23, is called {name}"
    )
    near = evidence.tree.near(name)
    hint = [f"this tree has {' and '.join(near)}"] if near else []
    todo = f"use SGLang {first} or newer" if first else _name_it(evidence)
    releases = f"before {first}" if first else "all"
    return _error(
        "class-missing", said, evidence=tuple(hint), releases=releases, todo=todo,
        outcome="stops:class",
    )  # fmt: skip


def _name_it(evidence: Evidence) -> str:
    wanted = evidence.kind.wanted
    if not wanted:
        return "give a draft checkpoint: one with an fc"
    if evidence.kind.name == "speculators":
        return (
            f'convert it: --fix-names OUT_DIR writes a config.json with "{wanted}" and'
            " the layer's fields moved up"
        )
    return f'set "architectures": ["{wanted}"] in config.json'


def _not_built(evidence: Evidence) -> Finding:
    build = evidence.build
    where = f" ({build['where']})" if build["where"] else ""
    return _error(
        "not-built",
        f"{build['built'] or 'the configuration'} can't be made from config.json:"
        f" {build['error']}",
        evidence=(f"raised in {build['failed']}{where}",),
        todo=_mend(build["error"]),
        outcome=f"stops:{build['failed']}",
    )


def _mend(error: str) -> str:
    if "draft_vocab_size" in error:
        return (
            "add draft_vocab_size to config.json: the rows of lm_head.weight, or null"
            " for the target's own head"
        )
    if "only supports 1 layer" in error:
        return "use SGLang 0.5.12 or newer, which takes drafts of several layers"
    return "mend the field of config.json that the error names"


def _error(code: str, text: str, *, evidence: tuple[str, ...] = (), todo: str,
           outcome: str, releases: str = "all") -> Finding:  # fmt: skip
    return Finding(
        CHECK, code, Severity.ERROR, text, evidence, releases, todo, "", outcome
    )
