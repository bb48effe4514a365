"""What stands in a stand-in module: classes that refuse to be called.

A placeholder is a class because SGLang, at import time, inherits from such names,
annotates with them, subscripts them and joins them with ``|``. What must *work* at
import time is in ``_answers``: decorators that keep the function and refuse to run
it, and integer helpers. Nothing here computes on a tensor.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from patchkit.verify.probe.ledger import Ledger

Answer = Callable[[], Any]


class Placeholder(type):
    """Metaclass of every unknown attribute of a stand-in module."""

    def __getattr__(cls, name: str) -> Any:
        if _is_dunder(name):
            raise AttributeError(name)
        return cls._shelf.attribute(cls._path + "." + name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "_path" not in cls.__dict__:  # a class of SGLang's own on top of ours
            return super().__call__(*args, **kwargs)
        return cls._shelf.ledger.call(cls._path, args, kwargs)

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return object

    def __ror__(cls, other: Any) -> Any:
        return object


class Shelf:
    """What each dotted name of a stand-in is: a working answer, else a placeholder."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.answers = _answers(self)

    def attribute(self, path: str) -> Any:
        answer = self.answers.get(path)
        return answer() if answer else self.placeholder(path)

    def placeholder(self, path: str) -> Any:
        module, _, name = path.rpartition(".")
        body = {"_path": path, "_shelf": self, "__module__": module}
        return Placeholder(name, (), body)


class Kernel:
    """A function under ``triton.jit``: kept for what reads it, never launched; the
    ledger may have something that does its work."""

    ledger = Ledger()

    def __init__(self, function: Any) -> None:
        self.fn = function
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__doc__ = getattr(function, "__doc__", None)
        self.__module__ = getattr(function, "__module__", "?")

    def __getitem__(self, grid: Any) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.ledger.call(f"triton kernel {self.__name__}", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if _is_dunder(name) or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)


def _answers(shelf: Shelf) -> dict[str, Answer]:
    """Dotted name -> what its attribute is, made when first asked for."""
    ledger = shelf.ledger
    kernel = type("Kernel", (Kernel,), {"ledger": ledger})

    def counted(path: str, function: Callable[..., Any]) -> Answer:
        def used(*args: Any, **kwargs: Any) -> Any:
            ledger.used[path] += 1
            return function(*args, **kwargs)

        return lambda: used

    helpers: dict[str, Callable[..., Any]] = {
        "triton.jit": _decorator(kernel),
        "triton.autotune": lambda *args, **kwargs: _same,
        "triton.heuristics": lambda *args, **kwargs: _same,
        "triton.Config": lambda *args, **kwargs: ("triton.Config", args, kwargs),
        "triton.cdiv": lambda a, b: -(-a // b),
        "triton.next_power_of_2": lambda n: 1 << max(0, int(n) - 1).bit_length(),
        "triton.language.constexpr": lambda value=None: value,
        "triton.language.dtype": lambda *args: args,
        **{
            name: _decorator(kernel)
            for name in ("cutlass.jit", "cutlass.cute.jit", "cutlass.cute.kernel")
        },
        "cutlass.cutlass_dsl.dsl_user_op": _decorator(_same),
    }
    table = {path: counted(path, function) for path, function in helpers.items()}
    table["triton.JITFunction"] = table["triton.runtime.jit.JITFunction"] = lambda: (
        kernel
    )
    # SGLang compares with it
    table["triton.language.core.TRITON_MAX_TENSOR_NUMEL"] = lambda: 1 << 20
    table["xgrammar.StructuralTag"] = _pydantic_model
    table["uvloop.EventLoopPolicy"] = lambda: asyncio.DefaultEventLoopPolicy
    # Up to 0.5.7, on a platform without sgl_kernel, layernorm.py and activation.py
    # end by rebinding these names to vllm's: hand SGLang's own classes back, whose
    # forward_native is what then runs.
    for module, names in (
        ("layernorm", ("RMSNorm", "GemmaRMSNorm")),
        ("activation", ("SiluAndMul", "GeluAndMul")),
    ):
        for name in names:
            path = f"vllm.model_executor.layers.{module}.{name}"
            table[path] = _handed_back(path, f"sglang.srt.layers.{module}", shelf)
    return table


def _handed_back(path: str, module: str, shelf: Shelf) -> Answer:
    name = path.rpartition(".")[2]

    def own() -> Any:
        found = getattr(sys.modules.get(module), name, None)
        if found is None:
            return shelf.placeholder(path)
        shelf.ledger.used[path] += 1
        return found

    return own


def _pydantic_model() -> Any:
    # 0.5.20 uses it as a field's type in a pydantic model of its own.
    import pydantic

    return type("StructuralTag", (pydantic.BaseModel,), {})


def _decorator(wrap: Callable[[Any], Any]) -> Callable[..., Any]:
    """``@name`` and ``@name(options)`` alike."""

    def decorate(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return wrap(args[0])
        return wrap

    return decorate


def _same(function: Any) -> Any:
    return function


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
