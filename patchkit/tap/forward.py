# patchkit: tap
"""The forward that runs now, as ``begin`` saw it, and whether a graph is captured."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch

# Where SGLang says that it is about to capture graphs; by then it makes warm-up runs.
_CAPTURE_MODE = (
    "sglang.srt.model_executor.runner_utils.capture_mode",
    "sglang.srt.model_executor.cuda_graph_runner",
)


@dataclass
class Forward:
    """``model`` None: nobody said where a forward begins.

    ``fresh``: no tap of this forward has gone to a device yet. ``warmup``: made by
    SGLang right before a capture, with invented inputs. ``loc``: the slots of the rows
    in the KV cache; 0 is the slot of padding rows.
    """

    model: str | None = None
    mode: str | None = None
    batch: int | None = None
    fresh: bool = False
    warmup: bool = False
    tbo: bool = False
    loc: Callable[[], object] = lambda: None

    def context(self) -> dict[str, object]:
        """What a line says about the forward, as far as it is known."""
        known = {"mode": self.mode, "batch": self.batch}
        return {key: value for key, value in known.items() if value is not None}


def of_batch(model: str, batch: object) -> Forward:
    """The forward of ``model`` on SGLang's ForwardBatch (or anything else)."""
    mode = getattr(batch, "forward_mode", None)
    size = getattr(batch, "batch_size", None)
    try:
        # Weak, so that a batch's tensors live no longer than without the tap.
        held: Callable[[], object] = weakref.ref(batch)
    except TypeError:
        held = lambda: batch  # noqa: E731
    return Forward(
        model=model,
        mode=None if mode is None else str(getattr(mode, "name", mode)),
        batch=size if isinstance(size, int) else None,
        fresh=True,
        warmup=warming_up(),
        tbo=bool(getattr(batch, "can_run_tbo", False)),
        # Looked up at each tap: SGLang's draft loop puts another one in each step.
        loc=lambda: getattr(held(), "out_cache_loc", None),
    )


def warming_up() -> bool:
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return False
    return any(
        getattr(sys.modules.get(name), "is_capture_mode", False) is True
        for name in _CAPTURE_MODE
    )


def capturing(kind: str) -> bool:
    """Whether a graph of devices of ``kind`` is being captured on this stream."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return True
    # Other accelerators with graphs (npu) mirror torch.cuda's functions.
    if kind in ("cpu", "cuda"):
        return False
    asks = getattr(getattr(torch, kind, None), "is_current_stream_capturing", None)
    return asks is not None and bool(asks())
