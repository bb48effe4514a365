"""The real draft class with the real configuration, on the meta device, and its real
``load_weights`` with tensors that have no values.

Request: ``entries`` (class -> module, of this tree), ``config``, ``instead`` (a class
to take in place of the configuration's, or ""), ``algorithm``, ``tensors`` (rows of
name, dtype, shape), ``values`` (of small tensors, by name), ``renamings`` (each a
mapping of names; the first is empty), ``embedding`` (shape of the target's, or null),
``widths`` of states to ask fc about.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from patchkit.verify.probe.drafts.entering import fc_for
from patchkit.verify.probe.drafts.setting import (
    Setting,
    config_of,
    failure,
    import_class,
    knows_type,
    on_meta,
    watched,
)
from patchkit.verify.probe.drafts.share import share
from patchkit.verify.probe.drafts.watch import Watch

#: As safetensors calls them.
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}

Json = dict[str, Any]

_NOTHING: Json = {"dropped": [], "cut": {}, "errors": {}, "unwritten": {}, "hot": None}
#: So many tensors that raise are listed; each costs a load.
MOST_ERRORS = 64


def answer(request: Mapping[str, Any], setting: Setting) -> Json:
    """``type_known``: see ``knows_type``. ``asked``: the architecture that the tree
    makes of the configuration's;
    ``built``: the class that was built. ``failed``: the step that raised (``class``,
    ``config``, ``build``), with its error; else ``parameters`` (name -> shape),
    ``reads`` (fields of the configuration), ``attributes``, ``shared``, ``loads``, one
    a renaming, and ``fc_for``: see ``entering``."""
    setting.start()
    found: Json = {"asked": "", "built": "", "failed": "config"}
    found["type_known"] = knows_type(request["config"])
    try:
        config, seen = watched(config_of(request["config"], setting.ledger))
        found |= {"asked": architecture(config), "failed": "class"}
        name = found["asked"] if found["asked"] in request["entries"] else ""
        name = request["instead"] or name
        if not name:
            return found | {"error": "no class", "where": ""}
        kind = import_class(request["entries"][name], name)
        found |= {"built": name, "failed": "build"}
        seen.clear()
        model = on_meta(kind, config)
    except Exception as error:
        return found | failure(error)
    found |= {
        "failed": "",
        "parameters": {k: list(v.shape) for k, v in model.named_parameters()},
        "attributes": _attributes(model),
        "loads": list(_loads(model, request)),
        "shared": share(model, request["algorithm"], request["embedding"]),
        "reads": sorted(seen),
    }
    return found | {"fc_for": fc_for(model, request["widths"])}


def architecture(config: Any) -> str:
    """What the tree's own rewriting of draft architectures makes of it."""
    names = getattr(config, "architectures", None) or [""]
    module: Any = importlib.import_module("sglang.srt.configs.model_config")
    rewrite = getattr(module.ModelConfig, "_config_draft_model", None)
    draft = SimpleNamespace(
        is_draft_model=True,
        hf_config=SimpleNamespace(**{**vars(config), "architectures": list(names)}),
        hf_text_config=config,
        speculative_algorithm="EAGLE3",
    )
    if rewrite is not None:
        # an architecture of another family may want more than is there
        with contextlib.suppress(Exception):
            rewrite(draft)
    return str(draft.hf_config.architectures[0])


def _attributes(model: Any) -> Json:
    """What a server reads of the draft besides its parameters."""
    inner = getattr(model, "model", None)
    fc = getattr(inner, "fc", None)
    weight = getattr(fc, "weight", None)
    embed = getattr(getattr(inner, "embed_tokens", None), "weight", None)
    head = getattr(getattr(model, "lm_head", None), "weight", None)
    return {
        "fc": list(weight.shape) if weight is not None else None,
        "embedding": list(embed.shape) if embed is not None else None,
        "head": list(head.shape) if head is not None else None,
        "tied": head is not None and head is embed,
        "hot_token_id": hasattr(model, "hot_token_id"),
        "head_from_target": bool(getattr(model, "load_lm_head_from_target", False)),
        "aux_states": getattr(inner, "num_aux_hidden_states", None),
        "captures": bool(getattr(model, "capture_aux_hidden_states", False)),
    }


def _loads(model: Any, request: Mapping[str, Any]) -> Iterator[Json]:
    """The first renaming, and the others if it leaves something to be wished for."""
    for number, renaming in enumerate(request["renamings"]):
        found = _load(model, request, renaming)
        yield found
        if number == 0 and not found.get("failed"):
            rest = [name for name in found["dropped"] if not name.endswith("t2d")]
            if not rest and not found["unwritten"]:
                return


def _load(model: Any, request: Mapping[str, Any], renaming: Mapping[str, str]) -> Json:
    """``dropped``: names that reached nothing; ``cut``: name -> how many of its
    elements were read, where that is not all; ``unwritten``: parameter -> elements
    that nothing wrote; ``errors``: name -> what its loading raised. A tensor that
    raises is left out and the rest loaded again, so that all of them are found."""
    refused: dict[str, Json] = {}
    for _ in range(MOST_ERRORS):
        watch = Watch()
        parameters = dict(model.named_parameters())
        watch.parameters(parameters.values())
        if hasattr(model, "hot_token_id"):
            model.hot_token_id = None
        at = [""]
        try:
            with watch:
                model.load_weights(_stream(request, renaming, watch, refused, at))
        except Exception as error:
            if not at[0]:
                return {**_NOTHING, "failed": "load", **failure(error)}
            if at[0] in refused:
                break
            refused[at[0]] = failure(error)
            continue
        break
    hot = getattr(model, "hot_token_id", None)
    consumed = set(watch.consumed)
    for held in _held(model):
        consumed |= watch.names_in(held)
    names = [row[0] for row in request["tensors"]]
    return {
        "dropped": [n for n in names if n not in consumed and n not in refused],
        "cut": watch.cut(),
        "errors": refused,
        "unwritten": {
            name: missing
            for name, one in parameters.items()
            if (missing := watch.missing(one))
        },
        "hot": None if hot is None else _hot(hot),
    }


def _hot(hot: torch.Tensor) -> Json:
    found: Json = {"length": int(hot.numel()), "dtype": str(hot.dtype)[6:]}
    if hot.device.type != "meta" and hot.numel():
        found |= {"least": float(hot.min()), "most": float(hot.max())}
    return found


def _stream(
    request: Mapping[str, Any],
    renaming: Mapping[str, str],
    watch: Watch,
    refused: Mapping[str, Json],
    at: list[str],
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, dtype, shape in request["tensors"]:
        if name in refused:
            continue
        tensor = _tensor(request, name, dtype, shape)
        watch.loaded(name, tensor)
        at[0] = name
        yield renaming.get(name, name), tensor
    at[0] = ""


def _tensor(
    request: Mapping[str, Any], name: str, dtype: str, shape: list[int]
) -> torch.Tensor:
    kind = DTYPES.get(dtype, torch.uint8)
    values = request["values"].get(name)
    if values is not None:
        return torch.tensor(values).to(kind).reshape(shape)
    if "d2t" in name:  # the loaders add numbers on the CPU to it
        return torch.zeros(shape, dtype=kind)
    return torch.empty(shape, dtype=kind, device="meta")


def _held(model: Any) -> Iterator[torch.Tensor]:
    """Tensors that modules keep as plain attributes, or as buffers."""
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, torch.Tensor):
                yield value
        for buffer in module._buffers.values():
            if buffer is not None:
                yield buffer
