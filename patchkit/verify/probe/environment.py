"""The process before sglang is imported: variables, logging, where sglang is found."""

from __future__ import annotations

import _imp
import contextlib
import gc
import hashlib
import importlib.abc
import importlib.machinery
import logging
import marshal
import os
import sys
import types
from collections.abc import Callable, Sequence
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from patchkit.verify.probe.device import Device
from patchkit.verify.probe.ledger import Ledger

VARIABLES = {
    "TORCHDYNAMO_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}
#: SGLang takes its CPU path only if told, and a CUDA device would come first.
ON_CPU = {"SGLANG_USE_CPU_ENGINE": "1", "CUDA_VISIBLE_DEVICES": ""}
#: Matrix products that are the same each time: cuBLAS reads it when it starts. To ask
#: whether there is a device must not initialise CUDA, which does not survive a fork.
ON_CUDA = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


def variables(device: Device) -> dict[str, str]:
    """The environment of a process that runs on ``device``."""
    if device.kind == "cpu":
        return VARIABLES | ON_CPU
    engine = "0" if device.kernels else "1"
    return VARIABLES | ON_CUDA | {"SGLANG_USE_CPU_ENGINE": engine}


def prepare(device: Device = Device()) -> None:  # noqa: B008 (frozen)
    """Set what torch and sglang read when they are imported."""
    os.environ.update(variables(device))
    # Half a million objects are made by imports and none is garbage: collecting
    # among them costs a tenth of the whole run.
    gc.disable()
    logging.basicConfig(
        level=logging.INFO, format="[%(asctime)s] %(message)s", stream=sys.stderr
    )
    for chatty in ("httpx", "httpcore", "urllib3", "filelock", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def bytecode_cache() -> Path:
    """Where compiled sglang modules go, so that the target is never written to."""
    cache = os.environ.get("PATCHKIT_CACHE")
    if not cache:
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        cache = str(Path(home, "patchkit"))
    return Path(cache) / f"bytecode-{MAGIC_NUMBER.hex()}"


Loaded = Callable[[types.ModuleType], None]


class TargetLoader(importlib.machinery.SourceFileLoader):
    """Loads a target's source, with bytecode kept elsewhere under its content's hash.

    So what runs is the source, never stale bytecode lying in the target, and
    a scratch copy of a release costs no second compilation. ``loaded`` is called with
    each module, as soon as it is.
    """

    def __init__(self, name: str, path: str, loaded: Loaded) -> None:
        super().__init__(name, path)
        self.loaded = loaded

    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        self.loaded(module)

    def get_code(self, fullname: str) -> types.CodeType | None:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        cached = bytecode_cache() / hashlib.sha256(source).hexdigest()
        try:
            code: types.CodeType = marshal.loads(cached.read_bytes())
        except (OSError, ValueError, TypeError, EOFError):
            code = self.source_to_code(source, path)
            _store(cached, marshal.dumps(code))
        # As importlib does: tracebacks and inspect.getsource go by this name.
        _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]
        return code


def _store(file: Path, data: bytes) -> None:
    with contextlib.suppress(OSError):  # a cache that can't be written costs time only
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(data)
        part.replace(file)


class TargetFinder(importlib.abc.MetaPathFinder):
    """Finds ``sglang`` in the target and nowhere else.

    It stands first, in front of the finders of editable installs.
    """

    def __init__(self, parent: Path) -> None:
        self.parent = str(parent)
        self.loaded: Loaded = lambda module: None

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top != "sglang":
            return None
        where = path if rest else [self.parent]
        spec = importlib.machinery.PathFinder.find_spec(fullname, where)
        if spec is not None and type(spec.loader) is (
            importlib.machinery.SourceFileLoader
        ):
            assert spec.origin is not None
            spec.loader = TargetLoader(fullname, spec.origin, self.loaded)
        return spec


def find_sglang_in(parent: Path) -> TargetFinder:
    """Make ``import sglang`` take ``parent/sglang``, also in grandchildren."""
    sys.path.insert(0, str(parent))  # and its version: importlib.metadata reads it
    finder = TargetFinder(parent)
    sys.meta_path.insert(0, finder)
    return finder


def shim_libraries(ledger: Ledger) -> None:
    """Bridge what changed in torch and transformers since a release was made."""
    import torch

    cpu: Any = torch._C._cpu
    if not hasattr(cpu, "_is_amx_tile_supported"):  # read by SGLang up to 0.5.3
        cpu._is_amx_tile_supported = lambda: False
        ledger.shim("torch._C._cpu._is_amx_tile_supported: False")

    _tolerate_pinning(torch, ledger)

    from transformers.models.auto import configuration_auto

    mapping: Any = configuration_auto.CONFIG_MAPPING
    register = mapping.register

    def register_again(key: Any, value: Any, exist_ok: bool = False) -> None:
        # 0.5.12 to 0.5.20 register model types that transformers has since gained.
        try:
            register(key, value, exist_ok=exist_ok)
        except ValueError:
            ledger.shim(
                "transformers: model types that it has by now, registered again"
            )
            register(key, value, exist_ok=True)

    mapping.register = register_again


def _tolerate_pinning(torch: Any, ledger: Ledger) -> None:
    """Let ``torch.tensor(..., pin_memory=True)`` be where nothing can be pinned.

    0.5.12 asks for that in the logits processor without asking whether it may.
    """
    if torch.cuda.is_available():
        return
    make = torch.tensor

    def tensor(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        if pin_memory:
            ledger.shim("torch.tensor: pin_memory without an accelerator")
        return make(*args, **kwargs)

    torch.tensor = tensor
