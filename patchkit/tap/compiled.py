# patchkit: tap
"""The same calls inside torch.compile: each becomes one operator.

An operator without results that claims to change nothing is removed as dead code, so
these claim to change ``TOKEN``. That also keeps their order. When the compiled code
runs, also into a CUDA graph, the operator makes the call that stood in the source.

The functions here are traced by Dynamo, so they only use what it understands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import emit
from .layers import captured_layers, count, in_features, out_features, unpack
from .settings import SETTINGS

with torch.inference_mode(False):
    TOKEN = torch.zeros(1)

_UNKNOWN = -1


class _Traced:
    """Of the code that is being traced now."""

    fc_input: object = None
    widths: Any = None
    tbo = False


_NOW = _Traced()


#: What each operator does when it runs; ``sites`` fills it.
RUN: dict[str, Callable[..., None]] = {}


def _begin(
    token: torch.Tensor, loc: torch.Tensor | None, model: str, mode: str, batch: int
) -> None:
    RUN["begin"](model, loc, mode or None, None if batch == _UNKNOWN else batch)


def _states(
    token: torch.Tensor,
    site: str,
    states: Sequence[torch.Tensor],
    layers: Sequence[int],
) -> None:
    known = [None if layer == _UNKNOWN else layer for layer in layers]
    RUN["states"](site, states, known)


def _stream(
    token: torch.Tensor,
    site: str,
    hidden_states: torch.Tensor,
    residual: torch.Tensor | None,
    layer: int,
    partial: bool,
) -> None:
    RUN["stream"](site, hidden_states, residual, layer, partial)


def _one(
    token: torch.Tensor,
    site: str,
    tensor: torch.Tensor,
    segments: int,
    names: str,
    values: Sequence[str],
) -> None:
    """``names`` of fields, separated by blanks; ``values``: see ``_text``."""
    fields = {k: _value(v) for k, v in zip(names.split(), values, strict=True)}
    RUN["one"](site, tensor, fields, segments)


_SCHEMAS = {
    "begin": "(Tensor(a!) token, Tensor? loc, str model, str kind, SymInt batch)",
    "states": "(Tensor(a!) token, str site, Tensor[] states, SymInt[] layers)",
    "stream": "(Tensor(a!) token, str site, Tensor hidden_states,"
    " Tensor? residual, int layer, bool partial)",
    "one": "(Tensor(a!) token, str site, Tensor tensor, SymInt segments,"
    " str names, str[] values)",
}
_BODIES = {"begin": _begin, "states": _states, "stream": _stream, "one": _one}


def _register() -> tuple[object, dict[str, Any]]:
    """The library, which must be kept, and the operators. None if that fails."""
    # After the package: several trees may be imported in one process.
    space = (__package__ or "patchkit_tap").replace(".", "_")
    try:
        library = torch.library.Library(space, "FRAGMENT")
        operators = {}
        for name, schema in _SCHEMAS.items():
            library.define(f"{name}{schema} -> ()")
            library.impl(name, _BODIES[name], "CompositeExplicitAutograd")
            torch.library.register_fake(
                f"{space}::{name}", lambda *args, **kwargs: None, lib=library
            )
            operators[name] = getattr(getattr(torch.ops, space), name).default
    except Exception as error:
        emit.say("torch.compile", f"taps in compiled code are silent: {error}")
        return None, {}
    return library, operators


_LIBRARY, _OPERATORS = _register() if SETTINGS.enabled else (None, {})


def _operator(name: str) -> Any:
    return _OPERATORS.get(name, _nothing)


def _nothing(*args: object) -> None:
    pass


# ---- traced


def begin(model: str, forward_batch: Any) -> None:
    _NOW.fc_input = None
    _NOW.widths = None
    _NOW.tbo = bool(getattr(forward_batch, "can_run_tbo", False))
    mode = getattr(forward_batch, "forward_mode", None)
    batch = getattr(forward_batch, "batch_size", None)
    loc = getattr(forward_batch, "out_cache_loc", None)
    _operator("begin")(
        TOKEN,
        loc,
        model,
        "" if mode is None else str(getattr(mode, "name", mode)),
        _UNKNOWN if batch is None else batch,
    )


def tap(site: str, tensor: torch.Tensor, /, **fields: object) -> None:
    _say(site, tensor, 1, fields)


def tap_states(
    site: str, states: Sequence[torch.Tensor] | torch.Tensor, model: Any
) -> None:
    if isinstance(states, torch.Tensor):
        many = unpack(states, count(model.config, "hidden_size"))
    else:
        many = states
    layers = captured_layers(model, two_batch=_NOW.tbo)
    if len(layers) != len(many):
        layers = [_UNKNOWN] * len(many)
    if isinstance(states, torch.Tensor):
        many = [states]
    _operator("states")(TOKEN, site, list(many), layers)


def tap_stream(
    site: str,
    hidden_states: torch.Tensor,
    residual: torch.Tensor | None,
    layer: int,
) -> None:
    partial = bool(getattr(hidden_states, "_sglang_needs_allreduce_fusion", False))
    _operator("stream")(TOKEN, site, hidden_states, residual, layer, partial)


def tap_parts(site: str, states: Sequence[torch.Tensor] | torch.Tensor | None) -> None:
    if isinstance(states, torch.Tensor):
        _NOW.widths = states.shape[-1]
    else:
        _NOW.widths = [state.shape[-1] for state in states or ()]


def tap_concat(
    site: str, result: torch.Tensor | None, hidden_states: torch.Tensor
) -> None:
    widths = _NOW.widths
    _NOW.widths = None
    if result is None:
        return
    fields: dict[str, object] = {"parts": None, "widths": widths}
    segments = 1
    if isinstance(widths, list):
        fields["parts"] = segments = len(widths)
    elif widths is not None:
        hidden = hidden_states.shape[-1]
        if hidden and widths % hidden == 0:
            segments = widths // hidden
            fields = {"parts": segments, "widths": [hidden] * segments}
            fields["parts_inferred"] = 1
    _say(site, result, segments, fields)


def tap_fc_in(site: str, hidden_states: torch.Tensor, fc: object) -> None:
    _NOW.fc_input = hidden_states
    made = out_features(fc)
    segments = 1
    if made and hidden_states.shape[-1] == in_features(fc):
        segments = hidden_states.shape[-1] // made
    _say(site, hidden_states, segments, {"in_features": in_features(fc)})


def tap_fc_out(site: str, hidden_states: torch.Tensor, fc: object) -> None:
    received = _NOW.fc_input
    _NOW.fc_input = None
    said = None
    if received is not None:
        said = "skipped" if received is hidden_states else "applied"
    _say(site, hidden_states, 1, {"fc": said, "in_features": in_features(fc)})


def _say(
    site: str, tensor: torch.Tensor, segments: int, fields: dict[str, object]
) -> None:
    names = " ".join(fields)
    values = [_text(value) for value in fields.values()]
    _operator("one")(TOKEN, site, tensor, segments, names, values)


# An operator takes strings, so a field travels as one: i3, f0.5, sword, n, li1,i2.


def _text(value: object) -> str:
    if value is None:
        return "n"
    if isinstance(value, (list, tuple)):
        return "l" + ",".join([_text(item) for item in value])
    if isinstance(value, int):
        return f"i{int(value)}"
    if isinstance(value, float):
        return f"f{value}"
    if isinstance(value, str):
        return "s" + value
    return "s" + type(value).__name__


def _value(text: str) -> object:
    kind, rest = text[:1], text[1:]
    if kind == "n":
        return None
    if kind == "l":
        return [_value(item) for item in rest.split(",")] if rest else []
    if kind == "i":
        return int(rest)
    return float(rest) if kind == "f" else rest
