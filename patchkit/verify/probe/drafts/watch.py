"""Where the values of loaded tensors go, seen at the operators, on any device.

Weight loaders narrow, view, copy and concatenate, and no two classes do it alike. What
they all end with is an operator that writes into a parameter's storage, so it is there
that they are watched; a result's origin is that of what it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_WRITES = ("aten::copy_", "aten::fill_", "aten::zero_")


class Watch(TorchDispatchMode):  # type: ignore[misc]
    """``origins``: storage -> names of the checkpoint's tensors in it. ``written``:
    storage -> the ranges of elements that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.origins: dict[int, set[str]] = {}
        self.written: dict[int, list[tuple[int, int]]] = {}
        self.consumed: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._parameters: set[int] = set()
        self._kept: list[torch.Tensor] = []

    def parameters(self, tensors: Iterable[torch.Tensor]) -> None:
        self._parameters = {storage(one) for one in tensors}

    def loaded(self, name: str, tensor: torch.Tensor) -> None:
        self._kept.append(tensor)  # a storage's address must not be used again
        self.origins.setdefault(storage(tensor), set()).add(name)
        self._sizes[name] = tensor.numel()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        names: set[str] = set()
        for one in _tensors((args, kwargs)):
            names |= self.origins.get(storage(one), set())
        if func._schema.name in _WRITES:
            self._wrote(args[0], names)
            if len(names) == 1 and storage(args[0]) in self._parameters:
                (name,) = names
                self._read[name] = self._read.get(name, 0) + args[0].numel()
        for one in _tensors(result):
            if names:
                self._kept.append(one)
                self.origins.setdefault(storage(one), set()).update(names)
        return result

    def _wrote(self, tensor: torch.Tensor, names: set[str]) -> None:
        where = storage(tensor)
        if where not in self._parameters:
            return
        self.consumed |= names
        if tensor.is_contiguous() or tensor.numel() == 0:
            first = tensor.storage_offset()
            ranges = [(first, first + tensor.numel())]
        else:
            ranges = list(_rows(tensor))
        self.written.setdefault(where, []).extend(ranges)

    def missing(self, tensor: torch.Tensor) -> int:
        """Elements of a parameter that nothing has written."""
        left: int = tensor.numel()
        covered = 0
        end = 0
        for first, last in sorted(self.written.get(storage(tensor), [])):
            covered += max(0, last - max(first, end))
            end = max(end, last)
        return left - covered

    def cut(self) -> dict[str, int]:
        """Tensors of which only a part was written into parameters."""
        return {
            name: count
            for name, count in self._read.items()
            if count < self._sizes[name]
        }

    def names_in(self, tensor: torch.Tensor) -> set[str]:
        return self.origins.get(storage(tensor), set())


def storage(tensor: torch.Tensor) -> int:
    """What tells a tensor's memory from another's, also where there is none."""
    place: int = tensor.untyped_storage()._cdata
    return place


def _rows(tensor: torch.Tensor) -> Iterable[tuple[int, int]]:
    """Ranges of a tensor that is narrowed along its last axis."""
    flat = tensor.as_strided(tensor.shape[:-1], tensor.stride()[:-1])
    offsets = [tensor.storage_offset()]
    for size, stride in zip(flat.shape, flat.stride()):
        offsets = [base + step * stride for base in offsets for step in range(size)]
    width = tensor.shape[-1]
    return [(base, base + width) for base in offsets]


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
