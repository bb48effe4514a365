"""What every request needs: parallel state, classes by name, configurations."""

from __future__ import annotations

import contextlib
import importlib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from patchkit.verify.probe import models, runtime
from patchkit.verify.probe.fixture import load_package
from patchkit.verify.probe.ledger import Ledger
from patchkit.verify.probe.named_draft import named_draft
from patchkit.verify.probe.recorder import Recorder, told

#: Of no account for shapes, and set by the server's own machinery.
_LEFT_OUT = ("auto_map", "quantization_config", "transformers_version")
#: Read as a bag of attributes: the classes of these in transformers 5 rewrite fields
#: that releases made for older ones read.
_PLAIN = ("deepseek_v3", "deepseek_v2", "deepseek_v32", "kimi_k2", "kimi_k25")

#: SGLang's CPU path has one kind of RoPE for MLA only.
_NO_SCALING = {
    **dict.fromkeys(("type", "rope_type"), "yarn"),
    **dict.fromkeys(("factor", "mscale", "mscale_all_dim"), 1.0),
    "original_max_position_embeddings": 4096,
    "beta_fast": 32,
    "beta_slow": 1,
}


class Setting:
    """One rank's parallel state, started on first use."""

    def __init__(self, rank: runtime.Rank, recorder: Recorder) -> None:
        self.rank = rank
        self.recorder = recorder
        self.ledger = recorder.ledger
        self.made: dict[str, Any] = {}
        self._started = False

    def start(self, hidden: int = 64, dtype: torch.dtype = torch.bfloat16) -> None:
        if self._started:
            return
        self._started = True
        args = runtime.publish_server_args(self.rank)
        runtime.start_distributed(args, self.rank, hidden, dtype)
        # what shares an embedding waits for a device that is not there
        torch.cuda.synchronize = lambda *_, **__: None


@contextlib.contextmanager
def draft_named(ids: Sequence[int] | None) -> Iterator[None]:
    """Inside, the server's arguments name a draft whose configuration has ``ids``: a
    patched tree may look them up there."""
    if ids is None:
        yield
        return
    with named_draft(load_package().load("draft"), ids):
        yield


def import_class(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"sglang.srt.models.{module}"), name)


def failure(error: BaseException) -> dict[str, Any]:
    """An exception as part of an answer; ``where`` is the innermost place in SGLang."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if "/sglang/" in f.filename.replace("\\", "/")]
    places = [
        f"{one.filename.replace(chr(92), '/').rpartition('/sglang/')[2]}:{one.lineno}"
        for one in inside
    ]
    return {"error": told(error), "where": places[-1] if places else ""}


def on_meta(kind: Any, config: Any) -> Any:
    """An instance of a model's class without memory for its parameters."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            return kind(config)
    finally:
        torch.set_default_dtype(before)


def config_of(fields: Mapping[str, Any], ledger: Ledger) -> Any:
    """``fields`` of a config.json as the object that models read, of the class that
    transformers has for its ``model_type``. No code of a checkpoint is ever run."""
    kept = {k: v for k, v in fields.items() if k not in _LEFT_OUT}
    kind = kept.get("model_type")
    if kind in _PLAIN or not isinstance(kind, str):
        return _bag(kept, ledger)
    from transformers import CONFIG_MAPPING

    try:
        maker = CONFIG_MAPPING[kind]
    except KeyError:
        return _bag(kept, ledger)
    rope = {k: kept[k] for k in ("rope_theta", "rope_scaling") if k in kept}
    if kind == "llama":
        rope = {"rope_theta": 10000.0, "rope_scaling": None, **rope}
        config = maker(**{k: v for k, v in kept.items() if k not in rope})
        for name, value in rope.items():
            if not hasattr(config, name):  # gone from the class in transformers 5
                setattr(config, name, value)
        return config
    return maker(**kept)


def knows_type(fields: Mapping[str, Any]) -> bool:
    """Whether a configuration of that ``model_type`` can be read without code of the
    checkpoint's own."""
    from transformers import CONFIG_MAPPING

    kind = fields.get("model_type")
    return isinstance(kind, str) and (kind in _PLAIN or kind in CONFIG_MAPPING)


def _bag(fields: Mapping[str, Any], ledger: Ledger) -> Any:
    from transformers import PretrainedConfig

    fields = {"pad_token_id": None, **fields}  # no longer a default of transformers'
    if "kv_lora_rank" in fields:
        fields = {"rope_theta": 10000.0, **fields}
        if not fields.get("rope_scaling"):
            ledger.shim("RoPE of an MLA layer: yarn of factor 1, which is none")
            fields["rope_scaling"] = _NO_SCALING
        return models.target_config(fields)
    return PretrainedConfig(**fields)


def watched(config: Any) -> tuple[Any, set[str]]:
    """The same configuration, and the set that gets the names of what is read of it."""
    seen: set[str] = set()
    kind = type(config)
    read: Any = kind.__getattribute__

    def getattribute(self: Any, name: str) -> Any:
        if not name.startswith("_"):
            seen.add(name)
        return read(self, name)

    body = {"__getattribute__": getattribute, "__module__": kind.__module__}
    config.__class__ = type(kind.__name__, (kind,), body)
    return config, seen
