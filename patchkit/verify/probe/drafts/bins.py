"""Names, shapes and dtypes of a ``.bin`` checkpoint, by torch's weights-only loader.

Request: ``files``. Nothing of a file's code is run, and its tensors stay on disk.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import torch

from patchkit.verify.probe.drafts.build import DTYPES
from patchkit.verify.probe.drafts.setting import Setting, failure

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
#: Tensors of so few bytes are handed over with their values.
SMALL = 1 << 23
_MAPS = ("d2t", "t2d")


def answer(request: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """``failed``: the file that could not be read, with the error; else ``tensors``
    (name, dtype, shape, file) and ``values`` of the vocabulary maps."""
    tensors: list[list[Any]] = []
    values: dict[str, Any] = {}
    for file in request["files"]:
        try:
            loaded = _load(file)
        except Exception as error:  # a pickle can raise anything
            return {"failed": file, **failure(error)}
        for name, one in loaded.items():
            if not isinstance(one, torch.Tensor):
                continue
            dtype = _NAMES.get(one.dtype, str(one.dtype))
            tensors.append([str(name), dtype, list(one.shape), file])
            small = one.numel() * one.element_size() <= SMALL
            if str(name).endswith(_MAPS) and small and one.device.type != "meta":
                values[str(name)] = one.flatten().tolist()
    return {"failed": "", "tensors": tensors, "values": values}


def _load(file: str) -> Mapping[Any, Any]:
    try:
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError as error:
        if "mmap" not in str(error):
            raise
        # written in the format before torch 1.6, which can't be mapped
        found = torch.load(file, map_location="meta", weights_only=True)
    if not isinstance(found, Mapping):
        raise pickle.UnpicklingError("it holds no mapping of names to tensors")
    return found
