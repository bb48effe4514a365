# patchkit: tap
"""A device's taps: what is sent to it, so that its records come back by themselves."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import torch

from . import emit, portable
from .calls import Call, Calls
from .forward import Forward, capturing
from .reader import Lane
from .ring import RECORD_BYTES, WORDS, Ring
from .saving import DeviceSaver, Files
from .settings import Settings

#: Tensors on these devices are looked at at once.
ON_HOST = frozenset({"cpu", "meta"})
#: Models that have a step number of their own.
_MODELS = 1000
_PORTABLE_RECORDS = 256
_NUMBERS = frozenset(
    {
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    }
)


class Triton(NamedTuple):
    """The modules that need it."""

    launch: ModuleType
    copying: ModuleType


class NotReady(Exception):
    """A graph is being captured, and what this tap needs was not prepared before."""


class Device:
    """Made before any capture; its memory is kept for ever, since graphs hold it."""

    def __init__(
        self,
        device: torch.device,
        settings: Settings,
        triton: Triton | None,
        files: Files,
        publish: Callable[[Lane], None],
    ) -> None:
        """``publish`` is told of each ring, to read it."""
        self._device = device
        self._publish = publish
        self._calls = Calls()
        self._models: dict[str, int] = {}
        self._done: set[object] = set()
        self._writer: portable.Writer | None = None
        # [0] counts records, [1 + m] the steps of model m.
        self._state = torch.zeros(1 + _MODELS, dtype=torch.int64, device=device)
        # Stands in for a tensor of a kind that has no statistics.
        self._dummy = torch.zeros(1, 1, device=device)
        copying = None if triton is None else triton.copying
        self._saver = DeviceSaver(device, settings, files, copying)
        self._launching = launching = None if triton is None else triton.launch
        self._launcher = None
        if launching is not None:
            self._launcher = launching.Launcher(device, settings.ring)
            pinned = device.type != "cpu"
            words = settings.ring * WORDS
            self._ring = torch.zeros(words, dtype=torch.int32, pin_memory=pinned)
            timed = launching.kernel.HAS_TIMER and device.type == "cuda"
            self._add_lane(self._ring, settings.ring, timed=timed)

    def send(
        self,
        site: str,
        tensor: torch.Tensor,
        forward: Forward,
        *,
        segments: int = 1,
        joined: bool = False,
        layers: Sequence[int | None] = (),
        fields: Mapping[str, object] | None = None,
        save: int = 0,
    ) -> bool:
        """Have ``tensor`` looked at; it holds ``segments`` states side by side.

        No synchronisation; safe while a graph is captured, and then repeated by each
        replay. Raises NotReady. True if it was captured; nothing is said of an empty
        tensor.
        """
        if tensor.numel() == 0:
            return False
        in_graph = capturing(self._device.type)
        matrix = _matrix(tensor)
        supported = matrix is not None
        if matrix is None:
            matrix, segments, joined = self._dummy, 1, False
        rows, width = matrix.shape[0], matrix.shape[1] // segments
        loc = self._mask(forward, rows) if supported else None
        first = forward.model is None or (forward.fresh and not forward.warmup)
        shape: tuple[int | None, ...] = tuple(tensor.shape)
        if supported and tensor.dim() == 2:
            shape = (None, tensor.shape[1] if joined else width)
        call = Call(
            site=site,
            model=forward.model,
            rank=emit.global_rank(),
            shape=shape,
            width=width,
            dtype=tensor.dtype,
            segments=segments,
            joined=joined and segments > 1,
            layers=tuple(layers),
            fields=tuple((k, _frozen(v)) for k, v in (fields or {}).items()),
            mode=forward.mode,
            batch=forward.batch,
            captured=in_graph,
            warmup=forward.warmup,
            counted=loc is not None,
            supported=supported,
            save=save if supported else 0,
        )
        model = self._model(forward.model or f"site {site}")
        number = self._calls.number(call)
        if call.save:
            step = self._state[1 + model :]
            self._saver.save(
                *(matrix, call, number, step),
                first=first,
                limit=0 if forward.warmup else save,
                capturing=in_graph,
            )
        self._launch(matrix, loc, call, number, model, first, in_graph)
        forward.fresh = False
        return in_graph

    def _launch(
        self,
        matrix: torch.Tensor,
        loc: torch.Tensor | None,
        call: Call,
        number: int,
        model: int,
        first: bool,
        in_graph: bool,
    ) -> None:
        if self._launcher is not None and self._launching is not None:
            how = None
            few = call.segments <= self._launching.MOST_SEGMENTS
            if matrix.dtype in self._launching.DTYPES and few:
                args = (matrix.shape[0], call.width, matrix.itemsize, call.segments)
                how = self._launching.plan(*args)
            if how is not None:
                stream = 0
                if self._device.type == "cuda":
                    stream = torch.cuda.current_stream(self._device).cuda_stream
                try:
                    self._launcher.launch(
                        *(matrix, loc, how, call.segments, self._state, self._ring),
                        call=number,
                        model=model,
                        first=first,
                        owner=(call.site, call.model, stream),
                        capturing=in_graph,
                    )
                    return
                except self._launching.NotReady as problem:
                    raise NotReady(str(problem)) from None
                except Exception as error:
                    # A triton that cannot compile this; it has launched nothing.
                    if in_graph:
                        raise
                    self._launcher = None
                    reason = " ".join(f"{type(error).__name__}: {error}".split())
                    text = f"triton failed, torch operations instead: {reason[:300]}"
                    emit.say(call.site, text, level=logging.WARNING)
        self._write(matrix, loc, call, number, model, first, in_graph)

    def _write(
        self,
        matrix: torch.Tensor,
        loc: torch.Tensor | None,
        call: Call,
        number: int,
        model: int,
        first: bool,
        in_graph: bool,
    ) -> None:
        if in_graph and (call.site, matrix.dtype) not in self._done:
            raise NotReady("did not run before the capture")
        if self._writer is None:
            # Tensors made in inference mode could not be changed outside of it.
            with torch.inference_mode(False):
                self._writer = portable.Writer(self._device, _PORTABLE_RECORDS)
            self._add_lane(self._writer.host, _PORTABLE_RECORDS, timed=False)
        steps = self._state[1 + model : 2 + model]
        self._writer.write(matrix, loc, call.segments, steps, call=number, first=first)
        self._done.add((call.site, matrix.dtype))

    def _add_lane(self, memory: torch.Tensor, capacity: int, *, timed: bool) -> None:
        size = capacity * RECORD_BYTES
        # ctypes keeps no reference: the lane has to.
        shared = (ctypes.c_char * size).from_address(memory.data_ptr())
        ring = Ring(memoryview(shared).cast("B"), capacity)
        self._publish(Lane(ring, self._calls, self._saver, timed=timed, owner=memory))

    def _mask(self, forward: Forward, rows: int) -> torch.Tensor | None:
        """Which rows are real; None if the batch does not tell for this tensor."""
        loc = forward.loc()
        if (
            isinstance(loc, torch.Tensor)
            and loc.device == self._device
            and loc.dim() == 1
            and loc.shape[0] == rows
            and loc.dtype in (torch.int64, torch.int32)
        ):
            return loc
        return None

    def _model(self, name: str) -> int:
        number = self._models.setdefault(name, len(self._models))
        if number >= _MODELS:
            raise ValueError(f"more than {_MODELS} models or sites without begin()")
        return number


def _matrix(tensor: torch.Tensor) -> torch.Tensor | None:
    """``tensor`` as [rows, width]; None if its kind has no statistics here.

    fp8 has none: its values mean nothing without the scale that goes with them.
    """
    if (
        tensor.layout != torch.strided
        or tensor.is_quantized
        or tensor.dtype not in _NUMBERS
    ):
        return None
    if tensor.dim() < 2:
        return tensor.reshape(1, -1)
    if tensor.dim() > 2:
        tensor = tensor.reshape(-1, tensor.shape[-1])
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _frozen(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return type(value).__name__
