"""GPU use by NVML, where it is there (the extra's nvidia-ml-py, and a driver)."""

from __future__ import annotations

import importlib
from typing import Any


class Gpus:
    """``read()`` is ``None`` where nothing can be known."""

    def __init__(self) -> None:
        self._nvml: Any = None
        try:
            pynvml = importlib.import_module("pynvml")
            pynvml.nvmlInit()
            self._nvml = pynvml
            count = pynvml.nvmlDeviceGetCount()
            self._devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        except Exception:  # not installed, no driver, no permission: all the same
            self._nvml = None

    def read(self) -> tuple[tuple[int, ...], int] | None:
        """Percent of use of each GPU, and bytes used on all of them."""
        if self._nvml is None:
            return None
        try:
            rates = [self._nvml.nvmlDeviceGetUtilizationRates(d) for d in self._devices]
            memory = [self._nvml.nvmlDeviceGetMemoryInfo(d) for d in self._devices]
        except self._nvml.NVMLError:
            return None
        return tuple(one.gpu for one in rates), sum(one.used for one in memory)
