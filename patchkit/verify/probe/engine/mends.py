"""Makes SGLang's scheduler, EAGLE worker and memory pools run on a CPU without kernels.

What a stand-in is asked to compute is done in torch, by the kernel's name; a few
functions and methods that have no branch for a CPU are replaced in the modules that
hold them. Every such call is counted in the ledger.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from patchkit.verify.probe.engine import attention, handed, index_kernels, memory
from patchkit.verify.probe.engine.tree_kernels import Saw, Verify, build_tree
from patchkit.verify.probe.ledger import Ledger

_SPECULATIVE = ".speculative."
_DRAFT = "sglang.srt.models.llama_eagle3"
#: A module says so where it has a branch for a CPU.
_CPU_BRANCH = "_is_cpu"
#: Torch functions that 0.5.5 to 0.5.9 call with ``device="cuda"`` in any case.
_FACTORIES = ("arange", "empty", "full", "tensor", "zeros", "ones")


class Mends:
    """``replace``: further functions of SGLang's, by name, wherever they are. ``tell``
    is called with the states that the draft is handed, see ``handed``."""

    def __init__(
        self,
        ledger: Ledger,
        saw: Saw,
        replace: dict[str, Callable[..., Any]] | None = None,
        tell: handed.Tell | None = None,
    ) -> None:
        self.ledger = ledger
        self.tell = tell
        self.done: set[str] = set()
        verify = Verify(saw).function
        compiled: dict[str, Callable[..., Any]] = {
            **index_kernels.COMPILED,
            "build_tree_kernel_efficient": build_tree,
            "build_tree_kernel_efficient_cpu": build_tree,
            "verify_tree_greedy": verify,
            "verify_tree_greedy_cpu": verify,
        }
        ledger.replacements |= {
            **{f"triton kernel {k}": one for k, one in index_kernels.TRITON.items()},
            **{f"sgl_kernel.{k}": one for k, one in compiled.items()},
            "vllm.logger.logger.setLevel": lambda *_: None,
        }
        functions: dict[str, Callable[..., Any]] = {
            **index_kernels.FUNCTIONS,
            "verify_tree_greedy_func": verify,
            "sgl_build_tree_kernel_efficient": build_tree,
        }
        self.functions = {k: self._counted(k, one) for k, one in functions.items()}
        self.replace = replace or {}

    def loaded(self, module: types.ModuleType) -> None:
        """Mend ``module``, which has just been imported, once."""
        name = module.__name__
        if name in self.done or not name.startswith("sglang."):
            return
        self.done.add(name)
        for short, mend in _BY_MODULE.items():
            if name == f"sglang.srt.{short}":
                mend(module)
        if self.tell is not None and name == _DRAFT:
            handed.watch(module, self.tell)
        for (short, function), wrap in _WRAPPED.items():
            theirs = vars(module).get(function)
            if name == f"sglang.srt.{short}" and theirs is not None:
                self._put(module, function, wrap(theirs))
        for function in self._missing(module):
            self._put(module, function, self.functions[function])
        for function, ours in self.replace.items():
            if getattr(vars(module).get(function), "__module__", "") == name:
                self._put(module, function, ours)

    def already(self) -> None:
        """Mend what has been imported before."""
        for name, module in list(sys.modules.items()):
            if name.startswith("sglang.") and module is not None:
                self.loaded(module)

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            self.ledger.replaced[name] += 1
            return function(*args, **named)

        return counted

    def _missing(self, module: types.ModuleType) -> list[str]:
        """Functions that ``module`` uses, or has, without a branch for a CPU. Where
        one is imported for CUDA only, the name does not even exist."""
        if _SPECULATIVE not in module.__name__:
            return []
        text = inspect.getsource(module)
        if _CPU_BRANCH in text:
            return []
        return [name for name in self.functions if name in text]

    def _put(self, module: types.ModuleType, name: str, ours: Any) -> None:
        """In ``module``, and wherever it was imported from there."""
        theirs = vars(module).get(name)
        setattr(module, name, ours)
        if theirs is None:
            return
        for other in list(sys.modules.values()):
            held = getattr(other, "__dict__", {})
            if held.get(name) is theirs and other.__name__.startswith("sglang."):
                held[name] = ours


def mend_torch(ledger: Ledger) -> None:
    """What is asked of torch for CUDA by name, and means nothing on a CPU."""
    import torch

    cuda: Any = torch.cuda
    cuda.synchronize = cuda.empty_cache = lambda *args, **named: None
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda self, stream: None
    for name in _FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name), ledger))


def _on_cpu(make: Callable[..., Any], ledger: Ledger) -> Callable[..., Any]:
    def made(*args: Any, **named: Any) -> Any:
        if named.get("device") == "cuda":
            ledger.replaced[f'torch.{make.__name__}(device="cuda")'] += 1
            named["device"] = "cpu"
        return make(*args, **named)

    return made


def _no_kernel_warm_up(module: types.ModuleType) -> None:
    """A pool copies with a Triton kernel, which it tries out when a draft is there."""
    pool: Any = vars(module)["MHATokenToKVPool"]
    if hasattr(pool, "_init_kv_copy_and_warmup"):
        pool._init_kv_copy_and_warmup = lambda self: setattr(
            self, "_kv_copy_config", None
        )


def _nothing(theirs: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: None


def _if_configured(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """torchao is imported before it is known to be wanted."""

    def applied(model: Any, config: Any, *rest: Any, **named: Any) -> Any:
        return theirs(model, config, *rest, **named) if config else model

    return applied


_BY_MODULE: dict[str, Callable[[types.ModuleType], None]] = {
    "layers.attention.torch_native_backend": attention.mend_backend,
    "speculative.draft_utils": attention.mend_factory,
    "models.deepseek_common.attention_backend_handler": attention.mend_latent,
    "models.deepseek_v2": attention.mend_latent,
    "mem_cache.memory_pool": _no_kernel_warm_up,
}
#: Module and function -> makes ours of theirs.
_WRAPPED: dict[tuple[str, str], Callable[[Any], Callable[..., Any]]] = {
    ("managers.load_snapshot", "shm_path_for"): memory.in_folder,
    ("utils.stale_shm_cleanup", "make_shm_name"): memory.named,
    ("utils.triton_load_watch", "install"): _nothing,
    ("layers.torchao_utils", "apply_torchao_config_to_model"): _if_configured,
}
