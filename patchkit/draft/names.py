"""Other names under which a checkpoint's tensors might be known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Renaming = Mapping[str, str]

#: What stands in one family's names, and what in another's.
_WORDS = (
    ("midlayer.", "layers.0."),
    ("layers.0.", "midlayer."),
    (".attn.", ".self_attn."),
    (".attention.", ".self_attn."),
    (".feed_forward.", ".mlp."),
    ("tok_embeddings.", "embed_tokens."),
)
#: What stands in front of all names of some checkpoints.
_FRONTS = ("model.", "draft_model.", "eagle_module.", "module.", "base_model.")
#: Ends of the names in a draft's layer, whatever the layer is called.
_PARTS = (
    *(f"self_attn.{one}_proj.weight" for one in "qkvo"),
    *(f"mlp.{one}_proj.weight" for one in ("gate", "up", "down")),
    "hidden_norm.weight",
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
)
_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
MOST = 24
#: No draft has more tensors; a whole model's are not renamed.
LARGEST = 2000
MAPS = ("d2t", "t2d")


def candidates(names: Sequence[str]) -> list[Renaming]:
    """None, and the renamings that at most two of the rules make."""
    found: list[Renaming] = [{}]
    if len(names) > LARGEST:
        return found
    seen = {tuple(names)}
    last = [list(names)]
    for _ in range(2):
        following = []
        for current in last:
            for renamed in _rewritten(current):
                if tuple(renamed) in seen or len(set(renamed)) < len(renamed):
                    continue
                seen.add(tuple(renamed))
                following.append(renamed)
                found.append({a: b for a, b in zip(names, renamed) if a != b})
        last = following
    return found[:MOST]


def _rewritten(names: Sequence[str]) -> list[list[str]]:
    found = [[_word(name, old, new) for name in names] for old, new in _WORDS]
    return found + [[one.removeprefix(front) for one in names] for front in _FRONTS]


def _word(name: str, old: str, new: str) -> str:
    """``old`` in a name where a part of it begins."""
    if old.startswith("."):
        return name.replace(old, new)
    return f".{name}".replace(f".{old}", f".{new}")[1:]


def guesses(load: Mapping[str, Any], answer: Mapping[str, Any], before: Renaming,
            shapes: Mapping[str, Sequence[int]]) -> Renaming:  # fmt: skip
    """``before``, and names for what is still dropped: by the end of the name, where
    the layer is called otherwise; by the shape, where only one fits."""
    dropped = [n for n in load["dropped"] if not n.endswith(MAPS)]
    parameters = answer["parameters"]
    layer = next(
        (
            name.removesuffix("hidden_norm.weight").removeprefix("model.")
            for name in parameters
            if name.endswith("hidden_norm.weight")
        ),
        None,
    )
    found = dict(before)
    for name in dropped:
        part = next((one for one in _PARTS if name.endswith(one)), None)
        if layer is not None and part is not None:
            found[name] = layer + part
    found |= _last_of_fused(list(shapes), dropped, load["unwritten"])
    left = [name for name in dropped if name not in found]
    wanted = [n for n in load["unwritten"] if n.removeprefix("model.") not in
              found.values()]  # fmt: skip
    for name in left:
        fitting = [p for p in wanted if parameters[p] == list(shapes[name])]
        rivals = [n for n in left if list(shapes[n]) == list(shapes[name])]
        if len(fitting) == 1 and len(rivals) == 1:
            found[name] = fitting[0].removeprefix("model.")
    values = [found.get(name, name) for name in shapes]
    return found if len(set(values)) == len(values) else before


def _last_of_fused(
    names: Sequence[str], dropped: Sequence[str], unwritten: Mapping[str, int]
) -> dict[str, str]:
    """Where one part of a fused parameter is missing and one name beside the others
    is not known, that is it."""
    found = {}
    for whole, parts in _FUSED.items():
        if not any(f".{whole}." in one for one in unwritten):
            continue
        held = {p: n for p in parts for n in names if n.endswith(f".{p}.weight")}
        missing = [part for part in parts if part not in held]
        beside = {name.removesuffix(f"{p}.weight") for p, name in held.items()}
        near = [n for n in dropped if n.rpartition(".")[0].rpartition(".")[0] + "." in
                beside]  # fmt: skip
        if len(missing) == len(near) == len(beside) == 1:
            found[near[0]] = beside.pop() + f"{missing[0]}.weight"
    return found


def score(load: Mapping[str, Any]) -> int:
    """How much is wrong after a load: dropped names, unwritten parameters, errors."""
    if load.get("failed"):
        return 1 << 20
    dropped = [name for name in load["dropped"] if not name.endswith(MAPS)]
    return (
        len(dropped) + len(load["unwritten"]) + len(load["errors"]) + len(load["cut"])
    )


def shown(renaming: Renaming) -> list[str]:
    """A renaming in few lines: ``layers.0.* -> midlayer.*``."""
    lines: dict[str, None] = {}
    for old, new in renaming.items():
        tail = _common_tail(old, new)
        head, other = old[: len(old) - len(tail)], new[: len(new) - len(tail)]
        star = "*" if tail else ""
        lines[f"{head}{star} -> {other}{star}"] = None
    return list(lines)


def _common_tail(one: str, other: str) -> str:
    """The longest common end that begins at a part of both names."""
    parts, others = one.split("."), other.split(".")
    count = 0
    while count < min(len(parts), len(others)) and (
        parts[-1 - count] == others[-1 - count]
    ):
        count += 1
    return ".".join(parts[len(parts) - count :])
