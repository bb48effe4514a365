# patchkit: tap
"""The calls that patched code makes. None of them raises or changes a tensor."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec

import torch

from . import emit
from .settings import SETTINGS
from .statistics import measure

_P = ParamSpec("_P")

# Not there in torch 2.1.
_HAS_IS_COMPILING = hasattr(getattr(torch, "compiler", None), "is_compiling")


@dataclass
class _State:
    """What one process remembers between calls."""

    model: str | None = None
    steps: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    graphs: set[str] = field(default_factory=set)
    parts: dict[str, Any] = field(default_factory=dict)
    fc_input: object = None
    tbo: bool = False
    forward_batch: Callable[[], object] = lambda: None
    problems: Sequence[str] = SETTINGS.problems
    json: emit.JsonLines = field(
        default_factory=lambda: emit.JsonLines(SETTINGS.directory)
    )


_STATE = _State()


def _guarded(function: Callable[_P, None]) -> Callable[_P, None]:
    """Nothing when off or traced by torch.compile; a failure is said once per site."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        # Dynamo folds is_compiling() to True, so a compiled graph holds nothing of us.
        if _HAS_IS_COMPILING and torch.compiler.is_compiling():
            return
        if not SETTINGS.enabled:
            return
        try:
            with torch.no_grad():
                function(*args, **kwargs)
        except Exception as error:
            # The model must go on. A logging handler can raise too.
            with contextlib.suppress(Exception):
                site = str(args[0] if args else kwargs.get("site", function.__name__))
                _STATE.failures[site] += 1
                if _STATE.failures[site] == 1:
                    reason = " ".join(f"{type(error).__name__}: {error}".split())
                    text = f"tap failed: {reason[:500]}"
                    emit.say(site, text, level=logging.WARNING)

    return call


@_guarded
def begin(model: str, forward_batch: object) -> None:
    """A forward of ``model`` starts: next step, current model. No tensor work."""
    state = _STATE
    state.steps[model] += 1
    state.model = model
    # Left behind by a forward that raised halfway.
    state.fc_input = None
    state.parts.clear()
    state.tbo = bool(getattr(forward_batch, "can_run_tbo", False))
    try:
        # Weak, so that a batch's tensors live no longer than without the tap.
        state.forward_batch = weakref.ref(forward_batch)
    except TypeError:
        state.forward_batch = lambda: forward_batch


@_guarded
def tap(site: str, tensor: torch.Tensor, /, **fields: object) -> None:
    """One line about ``tensor`` (any shape), with ``fields`` after the statistics.

    ``layer=`` goes to its usual place. Field names of the line itself are refused.
    """
    taken = sorted(emit.RESERVED.intersection(fields))
    if taken:
        raise ValueError(f"field names of the tap itself: {', '.join(taken)}")
    step = _step_if_wanted(site, tensor)
    if step is not None:
        _observe(site, step, tensor, fields)


@_guarded
def tap_states(
    site: str, states: Sequence[torch.Tensor] | torch.Tensor, model: Any
) -> None:
    """One line per captured state, each with the layer it was captured in front of.

    ``states``: k tensors [rows, hidden], or one packed [rows, k * hidden]. ``model``:
    SGLang's DeepseekV2Model. Where the layers cannot be told, ``layer=?``.
    """
    packed = isinstance(states, torch.Tensor)
    step = _step_if_wanted(site, *([states] if packed else states))
    if step is None:
        return
    if isinstance(states, torch.Tensor):
        states = _unpack(states, _count(model.config, "hidden_size"))
    layers: Sequence[int | None] = _captured_layers(model, two_batch=_STATE.tbo)
    if len(layers) != len(states):
        layers = [None] * len(states)
    for layer, state in zip(layers, states, strict=True):
        _observe(site, step, state, {"layer": layer})


@_guarded
def tap_stream(
    site: str,
    hidden_states: torch.Tensor,
    residual: torch.Tensor | None,
    layer: int,
) -> None:
    """The residual stream [rows, hidden] in front of ``layer``.

    ``partial=1``: this rank holds a part of the sum only, because the all-reduce is
    fused into the next norm, or the two are scattered differently.
    """
    step = _step_if_wanted(site, hidden_states)
    if step is None:
        return
    partial = bool(getattr(hidden_states, "_sglang_needs_allreduce_fusion", False))
    stream = hidden_states
    if residual is not None:
        if residual.shape == hidden_states.shape:
            stream = hidden_states + residual
        else:
            partial = True
    fields: dict[str, object] = {"layer": layer}
    _observe(site, step, stream, fields | ({"partial": 1} if partial else {}))


@_guarded
def tap_parts(site: str, states: Sequence[torch.Tensor] | torch.Tensor | None) -> None:
    """Remember the widths of what is about to be concatenated. No tensor work."""
    if isinstance(states, torch.Tensor):
        _STATE.parts[site] = states.shape[-1]
    else:
        _STATE.parts[site] = [state.shape[-1] for state in states or ()]


@_guarded
def tap_concat(
    site: str, result: torch.Tensor | None, hidden_states: torch.Tensor
) -> None:
    """The concatenation [rows, sum of widths], and what it was made of.

    ``parts=0``: there were no states. ``parts_inferred=1``: they arrived packed, so
    their number is width / hidden width. ``parts=?``: neither fits.
    """
    widths = _STATE.parts.pop(site, None)
    if result is None:
        return
    step = _step_if_wanted(site, result)
    if step is None:
        return
    fields: dict[str, object] = {"parts": None, "widths": widths}
    if isinstance(widths, list):
        fields["parts"] = len(widths)
    elif widths is not None:
        hidden = hidden_states.shape[-1]
        if hidden and widths % hidden == 0:
            parts = widths // hidden
            fields = {"parts": parts, "widths": [hidden] * parts, "parts_inferred": 1}
    _observe(site, step, result, fields | {"model": _STATE.model})


@_guarded
def tap_fc_in(site: str, hidden_states: torch.Tensor, fc: object) -> None:
    """What the draft receives [rows, k * hidden], before it decides about ``fc``."""
    # Kept up to tap_fc_out at most: identity is what tells whether fc ran.
    _STATE.fc_input = hidden_states
    step = _step_if_wanted(site, hidden_states)
    if step is not None:
        _observe(site, step, hidden_states, {"in_features": _in_features(fc)})


@_guarded
def tap_fc_out(site: str, hidden_states: torch.Tensor, fc: object) -> None:
    """What goes on into the draft [rows, hidden], and whether ``fc`` made it."""
    received, _STATE.fc_input = _STATE.fc_input, None
    step = _step_if_wanted(site, hidden_states)
    if step is None:
        return
    fields: dict[str, object] = {"fc": None, "in_features": _in_features(fc)}
    if received is not None:
        fields["fc"] = "skipped" if received is hidden_states else "applied"
    _observe(site, step, hidden_states, fields)


def _step_if_wanted(site: str, *tensors: object) -> int | None:
    """The step to report, or None if nothing must be said (or computed) now."""
    state = _STATE
    problems, state.problems = state.problems, ()
    for problem in problems:
        emit.say("settings", problem, level=logging.WARNING)
    if not SETTINGS.wants_site(site) or not SETTINGS.wants_rank(emit.global_rank()):
        return None
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"expected a tensor, got {type(tensor).__name__}")
    if any(_in_graph_capture(tensor) for tensor in tensors):
        if site not in state.graphs:
            state.graphs.add(site)
            emit.say(site, "inside a CUDA graph: this tap is silent at replay")
        return None
    if state.model is None:
        # Nobody says where a step begins: count this site's own calls.
        state.calls[site] += 1
        step = state.calls[site]
    else:
        step = state.steps[state.model]
    return step if SETTINGS.wants_step(step) else None


def _in_graph_capture(tensor: object) -> bool:
    """A synchronisation now would break the capture, and the server with it."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return True
    # Other accelerators with graphs (npu) mirror torch.cuda's functions.
    kind = tensor.device.type if isinstance(tensor, torch.Tensor) else "cpu"
    if kind in ("cpu", "cuda"):
        return False
    asks = getattr(getattr(torch, kind, None), "is_current_stream_capturing", None)
    return asks is not None and bool(asks())


def _observe(
    site: str, step: int, tensor: torch.Tensor, fields: dict[str, object]
) -> None:
    statistics = measure(tensor)
    rank = emit.global_rank()
    emit.say(site, emit.line(rank, step, tensor, statistics, fields))
    if SETTINGS.directory is not None:
        values = (site, _STATE.model, rank, step, tensor, statistics, fields)
        _STATE.json.write(rank, emit.record(*values))


def _captured_layers(model: Any, *, two_batch: bool) -> list[int]:
    """Indices at which this rank's layer loop captures, in the order it meets them."""
    start = getattr(model, "start_layer", None) or 0
    end = getattr(model, "end_layer", None)
    if end is None:
        layers = getattr(model, "layers", None)
        end = sys.maxsize if layers is None else len(layers)
    dense = getattr(model, "first_k_dense_replace", None)
    # Two-batch overlap runs the layers from `dense` on outside the loop that captures.
    if two_batch and dense is not None:
        if start < dense < end:
            end = dense
        elif dense < start:
            end = start
    wanted = {int(layer) for layer in model.layers_to_capture}
    return sorted(layer for layer in wanted if start <= layer < end)


def _unpack(packed: torch.Tensor, hidden: int | None) -> Sequence[torch.Tensor]:
    """Views of the k segments; the whole, as one, if the width is no multiple."""
    width = packed.shape[-1]
    if not hidden or not width or width % hidden:
        return (packed,)
    segments: Sequence[torch.Tensor] = torch.split(packed, hidden, dim=-1)
    return segments


def _in_features(fc: object) -> int | None:
    # SGLang's own linear layers call it input_size.
    count = _count(fc, "in_features")
    return _count(fc, "input_size") if count is None else count


def _count(owner: object, name: str) -> int | None:
    value = getattr(owner, name, None)
    return value if isinstance(value, int) else None
