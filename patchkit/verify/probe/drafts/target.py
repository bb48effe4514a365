"""The real target class, on the meta device, asked which layers it would capture.

Request: ``module`` and ``name`` of the class, ``config``; ``inner``, where the class
wraps a language model: module, name and configuration of that; ``steps``: lists of
layer ids in the order in which a server passes them, ``null`` for none; ``ids``: those
that the draft's configuration names, or null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from patchkit.verify.probe.drafts.setting import (
    Setting,
    config_of,
    draft_named,
    failure,
    import_class,
    on_meta,
)
from patchkit.verify.probe.wrapped import DELEGATES

Json = dict[str, Any]


def answer(request: Mapping[str, Any], setting: Setting) -> Json:
    """``failed``: the step that raised, with its error; else ``methods`` (those of
    EAGLE-3's that it has), ``embedding`` (shape, or null) and ``steps``: for each
    ``layers``, or an ``error``."""
    setting.start()
    step = "class"
    try:
        kind = import_class(request["module"], request["name"])
        step = "build"
        model = _build(kind, request, setting)
    except Exception as error:
        return {"failed": step, **failure(error)}
    with draft_named(request["ids"]):
        steps = [_step(model, ids) for ids in request["steps"]]
    return {
        "failed": "",
        "methods": [name for name in DELEGATES if hasattr(model, name)],
        "embedding": _embedding(model),
        "steps": steps,
    }


def _build(kind: Any, request: Mapping[str, Any], setting: Setting) -> Any:
    inner = request["inner"]
    if inner is None:
        return on_meta(kind, config_of(_short(request["config"]), setting.ledger))
    module, name, fields = inner
    config = config_of(_short(fields), setting.ledger)
    # the wrapper's own methods around a real language model, without its vision tower
    model = kind.__new__(kind)
    torch.nn.Module.__init__(model)
    model.config = config_of(request["config"], setting.ledger)
    model.language_model = on_meta(import_class(module, name), config)
    return model


def _short(fields: Mapping[str, Any]) -> Json:
    """Without the length that RoPE is stretched to: some releases make its tables on
    the CPU, hundreds of megabytes, and no layer id depends on them."""
    found = dict(fields)
    if (
        isinstance(found.get("rope_scaling"), dict)
        and "factor" in found["rope_scaling"]
    ):
        found["rope_scaling"] = {**found["rope_scaling"], "factor": 1.0}
    return found


def _embedding(model: Any) -> list[int] | None:
    try:
        embed, _ = model.get_embed_and_head()
        return list(embed.shape)
    except Exception:
        return None


def _step(model: Any, ids: list[int] | None) -> Json:
    setter = getattr(model, DELEGATES[0], None)
    if setter is None:
        return {"error": f"{type(model).__name__} has no {DELEGATES[0]}"}
    try:
        # without ids, one caller passes none and another passes None: both mean this
        setter(list(ids)) if ids is not None else setter()
    except Exception as error:
        return failure(error)
    for module in model.modules():
        layers = vars(module).get("layers_to_capture")
        if layers:
            return {"error": "", "layers": [_plain(layer) for layer in layers]}
    return {"error": "", "layers": []}


def _plain(layer: Any) -> Any:
    return layer if isinstance(layer, (int, float)) else repr(layer)
