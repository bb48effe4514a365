"""Where the models run: the CPU, or CUDA devices, with SGLang's own kernels or none.

On a CUDA device without ``sgl_kernel`` CUDA is hidden from SGLang, which then takes the
path of its own that needs no compiled kernel, over tensors that lie on the device.
Nothing of that touches CUDA before a worker does, so that workers can be forked.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import warnings
from dataclasses import dataclass
from typing import Any

from patchkit.verify.probe.ledger import Ledger

#: SGLang's compiled package: its CUDA path can't do without.
KERNELS = "sgl_kernel"
_TAP = "sglang.srt.patchkit_tap"
_NOT_DETERMINISTIC = "does not have a deterministic implementation"


class NoDevice(RuntimeError):
    """There is no such device here, or not for so many ranks."""


@dataclass(frozen=True)
class Device:
    """``kind``: ``cpu`` or ``cuda``. ``kernels``: SGLang sees the device and runs its
    own compiled kernels on it. ``count``: how many devices there are."""

    kind: str = "cpu"
    kernels: bool = False
    count: int = 0

    @property
    def hidden(self) -> bool:
        """Whether SGLang is not to know of the device that it runs on."""
        return self.kind == "cuda" and not self.kernels

    def name(self, rank: int) -> str:
        """What torch calls the device of ``rank``; ranks may share one."""
        return "cpu" if self.kind == "cpu" else f"cuda:{rank % max(1, self.count)}"

    def backend(self, ranks: int) -> str:
        """Of the process groups. Raises NoDevice if ``ranks`` can't share the
        devices: NCCL takes one rank a device, gloo as many as one likes."""
        if not self.kernels or ranks == 1:
            return "gloo"
        if ranks > self.count:
            raise NoDevice(
                f"{ranks} ranks need {ranks} CUDA devices with SGLang's own kernels"
                f" (NCCL), and there is {self.count}"
            )
        return "nccl"


def choose(kind: str) -> Device:
    """Before torch is imported: whether SGLang's own kernels are there for ``kind``."""
    if kind == "cpu":
        return Device()
    return Device(kind, importlib.util.find_spec(KERNELS) is not None)


def look(torch: Any) -> dict[str, Any]:
    """``devices`` and ``device_name``. Raises NoDevice if there is none.

    A child of this process looks, which CUDA is not initialised in afterwards.
    """
    if torch.version.cuda is None:
        raise NoDevice(
            f"torch {torch.__version__} is built without CUDA; patchkit verify --setup"
            " --device cuda makes an environment that has it"
        )
    inlet, outlet = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inlet)
        try:
            found = _seen(torch)
        except Exception as problem:
            found = {"error": " ".join(str(problem).split())[:300]}
        os.write(outlet, json.dumps(found).encode())
        os._exit(0)
    os.close(outlet)
    with os.fdopen(inlet, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    answer: dict[str, Any] = json.loads(said or b'{"error": "looking for one crashed"}')
    if "error" in answer:
        raise NoDevice(f"no CUDA device can be used here: {answer['error']}")
    return answer


def _seen(torch: Any) -> dict[str, Any]:
    torch.zeros(1, device="cuda")
    return {
        "devices": torch.cuda.device_count(),
        "device_name": torch.cuda.get_device_name(0),
    }


class Hiding:
    """Lets SGLang believe that there is no CUDA, where it is to run without kernels.

    While SGLang is imported nobody gets at CUDA, as on a machine without: Triton, which
    some releases ask at import, would initialise it for all that is forked later.
    Afterwards it is hidden from SGLang's own modules only. Triton launches for whatever
    tensor it is given, and the tap is to observe as it will in a server.
    """

    def __init__(self, torch: Any, device: Device, ledger: Ledger) -> None:
        self.torch = torch
        self.device = device
        if device.hidden:
            self.available = torch.cuda.is_available
            self.initialise = torch.cuda._lazy_init
            torch.cuda.is_available = lambda: False
            torch.cuda._lazy_init = _refuse
            ledger.shim(
                "torch.cuda.is_available: False for SGLang, which then needs no kernel"
            )

    def imported(self) -> None:
        """SGLang is."""
        if not self.device.hidden:
            return
        self.torch.cuda._lazy_init = self.initialise
        available = self.available

        def is_available() -> bool:
            asks = sys._getframe(1).f_globals.get("__name__", "")
            hidden = asks.startswith("sglang.") and not asks.startswith(_TAP)
            return not hidden and bool(available())

        self.torch.cuda.is_available = is_available


def _refuse() -> None:
    raise RuntimeError("CUDA is not initialised while SGLang is imported")


def why_not(device: Device, rank: int) -> str:
    """Why this process can't use its device; "" if it can. It can't where CUDA was
    initialised before it was forked."""
    try:
        attach(device, rank)
    except RuntimeError as problem:
        return " ".join(str(problem).split())[:300]
    return ""


def attach(device: Device, rank: int) -> str:
    """Take the device of ``rank``, and make results repeatable; its name in torch.

    Raises RuntimeError where CUDA can't be initialised in this process.
    """
    name = device.name(rank)
    if device.kind == "cuda":
        import torch

        torch.cuda.set_device(name)
        torch.zeros(1, device=name)
        # Matrix products in full float32, and none that sums in an order by chance.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cudnn.allow_tf32 = False
        torch.use_deterministic_algorithms(True, warn_only=True)
        deterministic: Any = getattr(torch.utils, "deterministic", None)
        if deterministic is not None:  # not to hide who reads what nobody wrote
            deterministic.fill_uninitialized_memory = False
    return name


def flush_tap() -> None:
    """What our tap records on a device is said by a thread of its own: let it."""
    speaker = sys.modules.get(f"{_TAP}.speaker")
    process = getattr(getattr(speaker, "STATE", None), "process", None)
    if process is not None:
        import torch

        torch.cuda.synchronize()
        process.reader.flush()


def note_chance(ledger: Ledger) -> None:
    """List operators that have no deterministic form, in place of torch's warnings."""
    show = warnings.showwarning

    def showwarning(message: Any, *args: Any, **kwargs: Any) -> None:
        text = str(message)
        if _NOT_DETERMINISTIC in text:
            ledger.shim(f"torch: {text.split()[0]} {_NOT_DETERMINISTIC}")
        else:
            show(message, *args, **kwargs)

    warnings.showwarning = showwarning
