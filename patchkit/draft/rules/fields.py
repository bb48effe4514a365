"""Fields of config.json that this release never reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchkit.draft import history
from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import Finding, Row, Severity, listed
from patchkit.draft.formats import SPECULATORS

CHECK = "fields"
#: Of the file, the tokenizer or the training: no server computes by them.
_ASIDE = frozenset(
    {
        *("architectures", "auto_map", "bos_token_id", "eos_token_id", "pad_token_id"),
        *("torch_dtype", "dtype", "transformers_version", "use_cache", "model_type"),
        *("initializer_range", "attention_dropout", "pretraining_tp", "mlp_bias"),
        *("_name_or_path", "_attn_implementation", "rope_theta", "rope_scaling"),
        *("rope_parameters", "id2label", "label2id", "num_key_value_heads"),
        *("return_dict", "output_hidden_states", "output_attentions", "is_decoder"),
        *("draft_vocab_size", "has_no_defaults_at_init", "speculators_version"),
        *("quantization_config", "attention_bias", "tie_word_embeddings", "head_dim"),
    }
)
_READ_BY_SGLANG = {"eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state"}


def judge(evidence: Evidence) -> Iterator[Finding | Row]:
    if not evidence.built:
        yield Row(CHECK, skipped="the class was not built: see architecture")
        return
    read = set(evidence.build["reads"])
    unread = [
        name
        for name in evidence.config
        if name not in read and not evidence.tree.mentions(name)
    ]
    telling = [
        name
        for name in unread
        if name in history.FIELDS and _tells(evidence.config[name])
    ]
    for name in telling:
        yield _unread(name, evidence.config[name])
    yield from _inside(evidence)
    # the nested part of a speculators checkpoint: see architecture
    rest = [] if evidence.assumed and evidence.kind is SPECULATORS else unread
    rest = [n for n in rest if n not in history.FIELDS and n not in _ASIDE]
    if rest:
        yield Finding(
            CHECK,
            "never-read",
            Severity.NOTE,
            f"fields that nothing reads: {listed(sorted(rest), 6)}",
        )
    yield Row(CHECK, "every field that changes what a draft computes is read")


def _tells(value: Any) -> bool:
    return value not in (None, False, {}, [], 0)


def _unread(name: str, value: Any) -> Finding:
    first = history.FIELDS[name]
    shown = repr(value) if isinstance(value, (bool, int, str)) else "set"
    if name == "norm_before_residual":
        why = "the draft was trained with its residual taken behind hidden_norm;"
        why += " SGLang takes it in front: other numbers, without a word"
        todo = "serve it with vLLM, or train with norm_before_residual false"
    else:
        why = "the draft then computes something else than it was trained to"
        todo = f"use {first} or newer" if first else "see architecture"
    return Finding(
        CHECK,
        "field-not-read",
        Severity.WARNING,
        f"{name} is {shown}, and this release never reads it",
        (why,),
        f"before {first}" if first else "all",
        todo,
    )


def _inside(evidence: Evidence) -> Iterator[Finding]:
    """Fields of ``eagle_config``."""
    eagle = evidence.config.get("eagle_config")
    if eagle is not None and not isinstance(eagle, dict):
        read = bool(eagle) and evidence.tree.mentions("eagle_config")
        yield Finding(
            CHECK,
            "eagle-config",
            Severity.ERROR if read else Severity.WARNING,
            f"eagle_config is {eagle!r:.40}, no object: "
            + ("a server ends as it reads it" if read else "nothing in it is read"),
            todo="write it as an object",
            outcome="stops:capture" if read else "",
        )
        return
    for name, value in (eagle or {}).items():
        # the draft class and the runners both take it apart
        known = evidence.tree.mentions(name) or name in history.FIELDS
        if (not known and _tells(value)) or (
            name == "use_aux_hidden_state"
            and value is False
            and not evidence.tree.mentions(name)
        ):
            first = {"use_aux_hidden_state": "0.5.8"}.get(name, "")
            yield Finding(
                CHECK,
                "field-not-read",
                Severity.WARNING if name in _READ_BY_SGLANG else Severity.NOTE,
                f"eagle_config.{name} is never read by this release",
                releases=f"before {first}" if first else "all",
                todo=f"use {first} or newer" if first else "",
            )
