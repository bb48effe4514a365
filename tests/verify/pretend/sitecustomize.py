"""A python in which torch seems to have two CUDA devices, whose tensors lie on the CPU.

With this folder on PYTHONPATH, ``patchkit verify --device cuda`` goes all its ways
on a machine without a GPU. PRETEND_INITIALISED=1: as if an import had initialised CUDA,
which a forked worker then can't use.
"""

import importlib.abc
import importlib.machinery
import os
import sys


class _AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            _pretend(module)

        spec.loader.exec_module = exec_module
        return spec


def _pretend(torch):
    from torch.overrides import TorchFunctionMode

    initialised = {os.getpid()} if os.environ.get("PRETEND_INITIALISED") else set()

    def lazy_init():
        if initialised - {os.getpid()}:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        initialised.add(os.getpid())

    def set_device(device):
        torch.cuda._lazy_init()

    def on_cpu(value):
        named = isinstance(value, (str, torch.device))
        return torch.device("cpu") if named and "cuda" in str(value) else value

    class Devices(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            named = {key: on_cpu(value) for key, value in (kwargs or {}).items()}
            if getattr(function, "__name__", "") == "to":
                args = tuple(map(on_cpu, args))
            return function(*args, **named)

    torch.version.cuda = "13.0"
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 2
    torch.cuda.get_device_name = lambda device=None: "a pretended device"
    torch.cuda._lazy_init = lazy_init
    torch.cuda.set_device = set_device
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.cuda.synchronize = lambda device=None: None
    Devices().__enter__()


sys.meta_path.insert(0, _AfterTorch())
