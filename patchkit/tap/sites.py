# patchkit: tap
"""The calls that patched code makes. None of them raises or changes a tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import torch

from . import compiled, emit
from .forward import Forward, of_batch, warming_up
from .layers import captured_layers, count, in_features, out_features, unpack
from .settings import SETTINGS
from .speaker import STATE, Speaker, quiet, speaker_for

_P = ParamSpec("_P")


def _guarded(function: Callable[_P, None]) -> Callable[_P, None]:
    """Quiet. Under torch.compile a call becomes an operator that makes the same call
    when the compiled code runs."""
    traced: Callable[_P, None] = getattr(compiled, function.__name__)
    now = quiet(function)

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        # Dynamo folds is_compiling() to True, and traces no more than `traced`.
        if not torch.compiler.is_compiling():
            now(*args, **kwargs)
        elif SETTINGS.enabled:
            traced(*args, **kwargs)

    return call


@_guarded
def begin(model: str, forward_batch: object) -> None:
    """A forward of ``model`` starts: next step, current model. No tensor work."""
    _start(model, of_batch(model, forward_batch))


@_guarded
def tap(site: str, tensor: torch.Tensor, /, **fields: object) -> None:
    """One line about ``tensor`` (any shape), with ``fields`` after the statistics.

    ``layer=`` goes to its usual place. Field names of the line itself are refused.
    """
    taken = sorted(emit.RESERVED.intersection(fields))
    if taken:
        raise ValueError(f"field names of the tap itself: {', '.join(taken)}")
    speaker = speaker_for(site, tensor)
    if speaker is not None:
        speaker.say(tensor, fields)


@_guarded
def tap_states(
    site: str, states: Sequence[torch.Tensor] | torch.Tensor, model: Any
) -> None:
    """One line per captured state, each with the layer it was captured in front of.

    ``states``: k tensors [rows, hidden], or one packed [rows, k * hidden]. ``model``:
    SGLang's DeepseekV2Model. Where the layers cannot be told, ``layer=?``.
    """
    packed = isinstance(states, torch.Tensor)
    speaker = speaker_for(site, *([states] if packed else states))
    if speaker is None:
        return
    many: Sequence[torch.Tensor] = (
        unpack(states, count(model.config, "hidden_size"))
        if isinstance(states, torch.Tensor)
        else states
    )
    layers: Sequence[int | None]
    layers = captured_layers(model, two_batch=STATE.forward.tbo)
    if len(layers) != len(many):
        layers = [None] * len(many)
    if isinstance(states, torch.Tensor) and speaker.device is not None:
        many = [states]
    _say_states(speaker, many, layers)


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
    speaker = speaker_for(site, hidden_states)
    if speaker is None:
        return
    partial = bool(getattr(hidden_states, "_sglang_needs_allreduce_fusion", False))
    _say_stream(speaker, hidden_states, residual, layer, partial)


@_guarded
def tap_parts(site: str, states: Sequence[torch.Tensor] | torch.Tensor | None) -> None:
    """Remember the widths of what is about to be concatenated. No tensor work."""
    if isinstance(states, torch.Tensor):
        STATE.parts[site] = states.shape[-1]
    else:
        STATE.parts[site] = [state.shape[-1] for state in states or ()]


@_guarded
def tap_concat(
    site: str, result: torch.Tensor | None, hidden_states: torch.Tensor
) -> None:
    """The concatenation [rows, sum of widths], and what it was made of.

    ``parts=0``: there were no states. ``parts_inferred=1``: they arrived packed, so
    their number is width / hidden width. ``parts=?``: neither fits.
    """
    widths = STATE.parts.pop(site, None)
    if result is None:
        return
    speaker = speaker_for(site, result)
    if speaker is None:
        return
    fields: dict[str, object] = {"parts": None, "widths": widths}
    if isinstance(widths, list):
        fields["parts"] = len(widths)
    elif widths is not None:
        hidden = hidden_states.shape[-1]
        if hidden and widths % hidden == 0:
            parts = widths // hidden
            fields = {"parts": parts, "widths": [hidden] * parts, "parts_inferred": 1}
    _say_concat(speaker, result, fields)


@_guarded
def tap_fc_in(site: str, hidden_states: torch.Tensor, fc: object) -> None:
    """What the draft receives [rows, k * hidden], before it decides about ``fc``."""
    # Kept up to tap_fc_out at most: identity is what tells whether fc ran.
    STATE.fc_input = hidden_states
    speaker = speaker_for(site, hidden_states)
    if speaker is None:
        return
    made, segments = out_features(fc), 1
    if made and hidden_states.shape[-1] == in_features(fc):
        segments = max(hidden_states.shape[-1] // made, 1)
    fields = {"in_features": in_features(fc)}
    speaker.say(hidden_states, fields, segments=segments)


@_guarded
def tap_fc_out(site: str, hidden_states: torch.Tensor, fc: object) -> None:
    """What goes on into the draft [rows, hidden], and whether ``fc`` made it."""
    received, STATE.fc_input = STATE.fc_input, None
    speaker = speaker_for(site, hidden_states)
    if speaker is None:
        return
    fields: dict[str, object] = {"fc": None, "in_features": in_features(fc)}
    if received is not None:
        fields["fc"] = "skipped" if received is hidden_states else "applied"
    speaker.say(hidden_states, fields)


def _start(model: str, forward: Forward) -> None:
    state = STATE
    state.steps[model] += 1
    state.forward = forward
    # Left behind by a forward that raised halfway.
    state.fc_input = None
    state.parts.clear()


def _say_states(
    speaker: Speaker, states: Sequence[torch.Tensor], layers: Sequence[int | None]
) -> None:
    """``states``: one per layer, or a packed one, for a device to take apart."""
    if len(states) != len(layers):
        (packed,) = states
        speaker.say(packed, {}, segments=len(layers), layers=layers)
        return
    for layer, state in zip(layers, states, strict=True):
        speaker.say(state, {"layer": layer})


def _say_stream(
    speaker: Speaker,
    hidden_states: torch.Tensor,
    residual: torch.Tensor | None,
    layer: int,
    partial: bool,
) -> None:
    stream = hidden_states
    if residual is not None:
        if residual.shape == hidden_states.shape:
            stream = hidden_states + residual
        else:
            partial = True
    fields: dict[str, object] = {"layer": layer}
    speaker.say(stream, fields | ({"partial": 1} if partial else {}))


def _say_concat(
    speaker: Speaker, result: torch.Tensor, fields: dict[str, object]
) -> None:
    widths = fields["widths"]
    segments = 1
    if isinstance(widths, list) and len(set(widths)) == 1:
        segments = len(widths)
    fields["model"] = STATE.forward.model
    speaker.say(result, fields, segments=segments)


# ---- what the operators of compiled code call


def start_compiled(
    model: str, loc: torch.Tensor | None, mode: str | None, batch: int | None
) -> None:
    forward = Forward(model=model, mode=mode, batch=batch, fresh=True)
    forward.warmup = warming_up()
    forward.loc = lambda: loc
    _start(model, forward)


def states_compiled(
    site: str, states: Sequence[torch.Tensor], layers: Sequence[int | None]
) -> None:
    speaker = speaker_for(site, *states)
    if speaker is None:
        return
    if len(states) != len(layers) and speaker.device is None:
        states = states[0].chunk(len(layers), dim=-1)
    _say_states(speaker, states, layers)


def stream_compiled(
    site: str,
    hidden_states: torch.Tensor,
    residual: torch.Tensor | None,
    layer: int,
    partial: bool,
) -> None:
    speaker = speaker_for(site, hidden_states)
    if speaker is not None:
        _say_stream(speaker, hidden_states, residual, layer, partial)


def one_compiled(
    site: str, tensor: torch.Tensor, fields: dict[str, object], segments: int
) -> None:
    speaker = speaker_for(site, tensor)
    if speaker is None:
        return
    if "parts" in fields:
        _say_concat(speaker, tensor, fields)
    else:
        speaker.say(tensor, fields, segments=segments)


compiled.RUN.update(
    begin=quiet(start_compiled),
    states=quiet(states_compiled),
    stream=quiet(stream_compiled),
    one=quiet(one_compiled),
)
