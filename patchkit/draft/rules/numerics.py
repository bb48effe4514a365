"""Numbers of the draft against the target's: what costs acceptance in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import Finding, Row, Severity
from patchkit.draft.formats import number

CHECK = "numerics"
_DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def judge(evidence: Evidence) -> Iterator[Finding | Row]:
    draft, target = evidence.fields, evidence.target
    yield from _rope(draft, target)
    yield from _differ("rms_norm_eps", draft, target, "the norms divide by others")
    yield from _context(draft, target)
    yield from _dtype(evidence, target)
    yield from _heads(evidence)
    yield Row(CHECK, "RoPE, norm eps, context and dtype are the target's")


def _rope(draft: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[Finding]:
    ours, theirs = _theta(draft), _theta(target)
    if ours is not None and theirs is not None and ours != theirs:
        yield _warn(
            "rope-theta",
            f"rope_theta is {ours:g}, the target's {theirs:g}",
            "right only if the draft was trained so",
        )
    one, other = _scaling(draft), _scaling(target)
    if one != other:
        yield _warn(
            "rope-scaling",
            f"RoPE scaling is {one}, the target's {other}",
            "right only if the draft was trained so; acceptance falls with the length"
            " of the context",
        )


def _theta(fields: Mapping[str, Any]) -> float | None:
    for place in (fields, fields.get("rope_parameters"), fields.get("rope_scaling")):
        value = place.get("rope_theta") if isinstance(place, Mapping) else None
        if isinstance(value, (int, float)):
            return float(value)
    return None


def _scaling(fields: Mapping[str, Any]) -> str:
    for name in ("rope_scaling", "rope_parameters"):
        value = fields.get(name)
        if isinstance(value, Mapping):
            kind = value.get("rope_type") or value.get("type") or "default"
            factor = value.get("factor")
            if kind != "default":
                return f"{kind} {factor}" if factor else str(kind)
    return "none"


def _differ(
    name: str, draft: Mapping[str, Any], target: Mapping[str, Any], why: str
) -> Iterator[Finding]:
    ours, theirs = draft.get(name), target.get(name)
    if ours is not None and theirs is not None and ours != theirs:
        yield _warn(
            name.replace("_", "-"),
            f"{name} is {ours}, the target's {theirs}: {why}",
            "right only if the draft was trained so",
        )


def _context(draft: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[Finding]:
    ours = number(draft, "max_position_embeddings")
    theirs = number(target, "max_position_embeddings")
    if ours is not None and theirs is not None and ours < theirs:
        yield _warn(
            "shorter-context",
            f"max_position_embeddings is {ours}, the target's {theirs}",
            "behind that position the draft guesses; some releases refuse to start"
            " without SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
        )


def _dtype(evidence: Evidence, target: Mapping[str, Any]) -> Iterator[Finding]:
    sizes: Counter[str] = Counter()
    for tensor in evidence.checkpoint.tensors.values():
        if tensor.dtype.startswith(("F", "BF")):
            sizes[tensor.dtype] += prod(tensor.shape)
    said = target.get("torch_dtype") or target.get("dtype")
    wanted = _DTYPES.get(str(said).removeprefix("torch."))
    if not sizes or wanted is None:
        return
    most = sizes.most_common(1)[0][0]
    if most != wanted:
        yield _warn(
            "dtype",
            f"the draft is {most}, the target {wanted}: it is cast when it is loaded",
            "the server takes the target's dtype unless told",
            severity=Severity.NOTE if most == "F32" else Severity.WARNING,
        )


def _heads(evidence: Evidence) -> Iterator[Finding]:
    """head_dim by the config against the rows of q_proj."""
    fields = evidence.fields
    heads, hidden = number(fields, "num_attention_heads"), number(fields, "hidden_size")
    said = number(fields, "head_dim")
    if not heads or not hidden or "kv_lora_rank" in fields:
        return
    for name, tensor in evidence.checkpoint.tensors.items():
        if name.endswith("self_attn.q_proj.weight") and len(tensor.shape) == 2:
            if said is None and tensor.shape[0] != hidden:
                yield _warn(
                    "head-dim",
                    f"head_dim is not in config.json, so it counts as"
                    f" {hidden // heads}; q_proj has {tensor.shape[0]} rows for"
                    f" {heads} heads",
                    f'set "head_dim": {tensor.shape[0] // heads}',
                )
            return


def _warn(
    code: str, text: str, todo: str, severity: Severity = Severity.WARNING
) -> Finding:
    return Finding(CHECK, code, severity, text, todo=todo)
