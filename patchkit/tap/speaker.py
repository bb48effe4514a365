# patchkit: tap
"""How a tap says something: here and now, or through the device of its tensor."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec

import torch

from . import emit
from .device import Device, NotReady
from .forward import Forward, capturing
from .process import Process
from .settings import SETTINGS
from .statistics import measure

_P = ParamSpec("_P")


@dataclass
class _State:
    """What one process remembers between calls."""

    forward: Forward = field(default_factory=Forward)
    steps: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    graphs: set[object] = field(default_factory=set)
    parts: dict[str, Any] = field(default_factory=dict)
    fc_input: object = None
    problems: Sequence[str] = SETTINGS.problems
    process: Process = field(default_factory=lambda: Process(SETTINGS))


STATE = _State()


def _after_fork() -> None:
    # The rings and their reader stay with the parent.
    STATE.process = Process(SETTINGS)


if SETTINGS.enabled and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def quiet(function: Callable[_P, None]) -> Callable[_P, None]:
    """Nothing when off; a failure is said once per site. The first argument is it."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        if not SETTINGS.enabled:
            return
        try:
            with torch.no_grad():
                function(*args, **kwargs)
        except Exception as error:
            # The model must go on. A logging handler can raise too.
            with contextlib.suppress(Exception):
                site = str(args[0] if args else kwargs.get("site", function.__name__))
                STATE.failures[site] += 1
                if STATE.failures[site] == 1:
                    reason = " ".join(f"{type(error).__name__}: {error}".split())
                    text = f"tap failed: {reason[:500]}"
                    emit.say(site, text, level=logging.WARNING)

    return call


@dataclass(frozen=True)
class Speaker:
    """Says something about tensors at ``site``: here and now, or through ``device``.

    ``step`` is for here; a device counts by itself.
    """

    site: str
    step: int
    device: Device | None

    def say(
        self,
        tensor: torch.Tensor,
        fields: Mapping[str, object],
        *,
        segments: int = 1,
        layers: Sequence[int | None] = (),
    ) -> None:
        """``segments`` states side by side, each in front of its layer, if given."""
        if self.device is None:
            _observe(self.site, self.step, tensor, dict(fields))
            return
        forward = STATE.forward
        try:
            captured = self.device.send(
                *(self.site, tensor, forward),
                segments=_dividing(segments, tensor),
                joined=not layers,
                layers=layers,
                fields=fields,
                save=SETTINGS.saved(self.site),
            )
        except NotReady as problem:
            _tell_silent(self.site, f"silent at replay: {problem}")
            return
        if captured:
            _tell_captured(self.site, forward)


def speaker_for(site: str, *tensors: object) -> Speaker | None:
    """None if nothing must be said (or computed) now."""
    state = STATE
    problems, state.problems = state.problems, ()
    for problem in problems:
        emit.say("settings", problem, level=logging.WARNING)
    if not SETTINGS.wants_site(site) or not SETTINGS.wants_rank(emit.global_rank()):
        return None
    device = None
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"expected a tensor, got {type(tensor).__name__}")
        in_graph = capturing(tensor.device.type)
        device = state.process.device_of(tensor, capturing=in_graph)
        if in_graph and device is None:
            # A synchronisation now would break the capture, and the server with it.
            _tell_silent(site, "this tap is silent at replay")
            return None
    if device is not None:
        return Speaker(site, 0, device)
    model = state.forward.model
    if model is None:
        # Nobody says where a step begins: count this site's own calls.
        state.calls[site] += 1
        step = state.calls[site]
    else:
        step = state.steps[model]
    return Speaker(site, step, None) if SETTINGS.wants_step(step) else None


def _observe(
    site: str, step: int, tensor: torch.Tensor, fields: dict[str, object]
) -> None:
    statistics = measure(tensor)
    rank = emit.global_rank()
    forward, process = STATE.forward, STATE.process
    fields |= forward.context()
    emit.say(site, emit.line(rank, step, tensor, statistics, fields))
    if SETTINGS.directory is not None:
        values = (site, forward.model, rank, step, tensor, statistics, fields)
        process.json.write(rank, emit.record(*values))
    if SETTINGS.saves and statistics is not None and process.files.wants(site):
        facts = {"model": forward.model, "rank": rank, "step": step, **fields}
        process.files.write(site, rank, tensor.detach().to("cpu", copy=True), facts)


def _tell_silent(site: str, text: str) -> None:
    if site not in STATE.graphs:
        STATE.graphs.add(site)
        emit.say(site, f"inside a CUDA graph: {text}")


def _tell_captured(site: str, forward: Forward) -> None:
    _tell_silent(site, "speaks at replay")
    rank, fields = emit.global_rank(), forward.context()
    if SETTINGS.directory is not None:
        data = emit.event(site, "captured", forward.model, rank, fields)
        STATE.process.json.write(rank, data)


def _dividing(segments: int, tensor: torch.Tensor) -> int:
    """``segments`` if the last axis falls into as many equal parts, else 1."""
    if tensor.dim() != 2 or tensor.shape[-1] % segments:
        return 1
    return segments
