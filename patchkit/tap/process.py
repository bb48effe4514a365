# patchkit: tap
"""What a process has one of: devices, the reader, files; its birth and its end."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import multiprocessing.util
import os
import signal
import threading
from types import FrameType, ModuleType

import torch

from . import emit
from .device import ON_HOST, Device, Triton
from .reader import Reader
from .saving import Files
from .settings import Settings


class Process:
    """Made when the package is imported; costs nothing before a device is used."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.json = emit.JsonLines(settings.directory)
        self.files = Files(settings, self.json)
        self.reader = Reader(settings, self.json)
        self.devices: dict[torch.device, Device] = {}
        self._hooked = False
        self._pid = os.getpid()

    def device_of(self, tensor: torch.Tensor, *, capturing: bool) -> Device | None:
        """Where taps of ``tensor`` go; None: look at it here and now.

        None too if a graph is being captured and the device was never used before:
        then nothing can be set up any more.
        """
        if tensor.device.type in ON_HOST:
            return None
        known = self.devices.get(tensor.device)
        if known is not None or capturing:
            return known
        # Tensors made in inference mode could not be changed outside of it.
        with torch.inference_mode(False), torch.no_grad():
            device = Device(
                *(tensor.device, self.settings, _triton(tensor.device), self.files),
                self.reader.add,
            )
        self.devices[tensor.device] = device
        self._hook()
        return device

    def flush(self, *, wait: float = 5.0) -> None:
        """Say all that was recorded; at the end of the process.

        A forked child does nothing: the ring is not its own.
        """
        if os.getpid() != self._pid:
            return
        with contextlib.suppress(Exception):
            self.reader.flush(wait=wait, final=True)

    def _hook(self) -> None:
        if self._hooked:
            return
        self._hooked = True
        atexit.register(self._at_exit)
        # A multiprocessing child ends without atexit.
        multiprocessing.util.Finalize(self, self._at_exit, exitpriority=100)
        self._on_sigterm()

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        with contextlib.suppress(Exception):
            for device in self.devices:
                if device.type == "cuda":
                    # Work that is still queued has records to write.
                    torch.cuda.synchronize(device)
        self.flush()

    def _on_sigterm(self) -> None:
        """Flush before SIGTERM ends the process, if nobody else handles it."""
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        ):
            return

        def end(number: int, frame: FrameType | None) -> None:
            self.flush(wait=1.0)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        signal.signal(signal.SIGTERM, end)


def _triton(device: torch.device) -> Triton | None:
    try:
        modules: list[ModuleType] = [
            importlib.import_module(f"{__package__}.{name}")
            for name in ("launch", "copying")
        ]
    except Exception as error:
        if not isinstance(error, ImportError):
            text = f"triton cannot be used: {type(error).__name__}: {error}"
            emit.say("triton", text[:300], level=logging.WARNING)
        return None
    usable = device.type == "cuda" or modules[0].kernel.INTERPRETED
    return Triton(*modules) if usable else None
