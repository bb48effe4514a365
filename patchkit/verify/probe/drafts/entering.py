"""Does fc run for a state of a given width? The real forward, up to there, on meta."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from patchkit.verify.probe.recorder import told

_BATCH = "sglang.srt.model_executor.forward_batch_info"


class _Applied(Exception):
    pass


class _Skipped(Exception):
    pass


def fc_for(model: Any, widths: Sequence[int]) -> dict[str, str]:
    """Width -> ``applied``, ``skipped`` (the layer is reached without fc), or what the
    draft raises, as a patched one may. {} for a class of another build."""
    inner = getattr(model, "model", None)
    fc = getattr(inner, "fc", None)
    layers = [
        module
        for module in (inner.modules() if inner is not None else ())
        if isinstance(getattr(module, "hidden_norm", None), torch.nn.Module)
    ]
    if not isinstance(fc, torch.nn.Module) or not layers:
        return {}
    with contextlib.ExitStack() as stack:
        for module, signal in [(fc, _Applied), *((one, _Skipped) for one in layers)]:
            handle = module.register_forward_pre_hook(_raising(signal))
            stack.callback(handle.remove)
        return {str(width): _enter(inner, width) for width in widths}


def _raising(signal: type[Exception]) -> Any:
    def raises(*_: Any) -> None:
        raise signal

    return raises


def _enter(inner: Any, width: int) -> str:
    mode: Any = importlib.import_module(_BATCH).ForwardMode
    ids = torch.zeros(1, dtype=torch.int64, device="meta")
    states = torch.empty(1, width, dtype=torch.bfloat16, device="meta")
    batch = SimpleNamespace(
        spec_info=SimpleNamespace(hidden_states=states),
        forward_mode=mode.EXTEND,
        mm_input_embeds=None,
        mrope_positions=None,
        contains_mm_inputs=lambda: False,
    )
    try:
        with torch.no_grad():
            inner.forward(ids, ids, batch)
    except _Applied:
        return "applied"
    except _Skipped:
        return "skipped"
    except Exception as error:
        return told(error)
    return "skipped"
