# patchkit: tap
"""``EAGLE3_DEBUG_SAVE``: the first tensors of a site, as safetensors files."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from types import ModuleType

import torch

from . import emit
from .calls import Call, Calls
from .ring import Record
from .settings import Settings

#: Tensors that a device may save before the host has written them.
_ENTRIES = 4096
_WORDS = 4


class Files:
    """Writes files, at most ``save_bytes`` of tensors in a process. Any thread."""

    def __init__(self, settings: Settings, json: emit.JsonLines) -> None:
        self._settings = settings
        self._json = json
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._bytes = 0
        self._told: set[str] = set()

    def wants(self, site: str) -> int:
        """How many more tensors of ``site``."""
        return max(self._settings.saved(site) - self._counts[site], 0)

    def write(
        self, site: str, rank: int, tensor: torch.Tensor, facts: Mapping[str, object]
    ) -> None:
        """``tensor``: on the host, not shared. ``facts`` become the file's metadata."""
        directory = self._settings.directory
        size = tensor.numel() * tensor.element_size()
        with self._lock:
            if directory is None or not self.wants(site):
                return
            if self._bytes + size > self._settings.save_bytes:
                limit = "EAGLE3_DEBUG_SAVE_MB is reached: no more tensors are saved"
                self.tell(limit)
                return
            self._counts[site] += 1
            self._bytes += size
            count = self._counts[site]
        try:
            save_file = importlib.import_module("safetensors.torch").save_file
        except ImportError as error:
            self.tell(f"EAGLE3_DEBUG_SAVE needs safetensors: {error}")
            return
        model = str(facts.get("model") or "none")
        name = f"{site}-{model}-rank{rank}-pid{os.getpid()}-{count}.safetensors"
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
        metadata = {k: emit.word(v) for k, v in facts.items() if v is not None}
        try:
            os.makedirs(directory, exist_ok=True)
            path = os.path.join(directory, name)
            save_file({"tensor": tensor.contiguous()}, path, {"site": site, **metadata})
        except Exception as error:
            self.tell(f"no tensor saved under {directory}: {error}")
            return
        fields = {"file": name, "shape": list(tensor.shape)}
        data = emit.event(site, "saved", model, rank, fields)
        self._json.write(rank, data)

    def tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            emit.say("EAGLE3_DEBUG_SAVE", text, level=logging.WARNING)


class DeviceSaver:
    """Copies tensors of one device to host memory that was set aside, in stream order.

    The copy goes in front of the tap's own record; when that is there, so is the copy.
    With triton a graph's replay copies too, until the site has its N tensors or the
    memory is used up. Without, only what runs outside graphs is saved.
    """

    def __init__(
        self,
        device: torch.device,
        settings: Settings,
        files: Files,
        copying: ModuleType | None,
    ) -> None:
        """``copying``: the module ``copying``, None without triton."""
        self._device = device
        self._files = files
        self._waiting: dict[int, deque[torch.Tensor]] = defaultdict(deque)
        self._seen = 0
        self._open: list[tuple[int, int, int]] = []
        self._shapes: dict[int, tuple[int, int]] = {}
        self._copier = None
        if settings.saves and copying is not None:
            self._copier = copying.Copier(device, settings.save_bytes, _ENTRIES)

    def save(
        self,
        matrix: torch.Tensor,
        call: Call,
        number: int,
        step: torch.Tensor,
        *,
        first: bool,
        limit: int,
        capturing: bool,
    ) -> None:
        """Copy ``matrix`` [rows, width]; ``step`` [1, ...] is its model's counter.

        ``limit`` 0: only prepare to copy it inside a graph.
        """
        self._shapes[number] = (matrix.shape[0], matrix.shape[1])
        if self._copier is not None:
            if not capturing and not self._files.wants(call.site):
                return
            if not self._copier.copy(
                *(matrix, call.site, number, step, first, limit, capturing)
            ):
                self._files.tell(f"{call.site} is not saved from a graph: no warm-up")
        elif capturing:
            self._files.tell("without triton nothing is saved inside CUDA graphs")
        elif min(self._files.wants(call.site), limit) > len(self._waiting[number]):
            pinned = self._device.type != "cpu"
            held = torch.empty(matrix.shape, dtype=matrix.dtype, pin_memory=pinned)
            self._waiting[number].append(held.copy_(matrix, non_blocking=True))

    def collect(self, call: Call, number: int, record: Record) -> None:
        """The record of ``call`` is there: write what was copied for it."""
        if self._copier is None:
            if self._waiting[number]:
                self._write(
                    call, record.step, record.rows, self._waiting[number].popleft()
                )
            return
        self._look()
        for entry in self._open:
            if entry[:2] == (number, record.step):
                self._open.remove(entry)
                self._write_entry(call, entry, record.rows)
                return

    def finish(self, calls: Calls) -> None:
        """Write copies whose record was lost."""
        if self._copier is None:
            return
        self._look()
        entries, self._open = self._open, []
        for entry in entries:
            call = calls.get(entry[0])
            if call is not None:
                self._write_entry(call, entry, None)

    def _look(self) -> None:
        assert self._copier is not None
        for entry in self._copier.entries(self._seen):
            self._seen += 1
            self._open.append(entry)

    def _write_entry(
        self, call: Call, entry: tuple[int, int, int], rows: int | None
    ) -> None:
        assert self._copier is not None
        number, step, offset = entry
        tensor = self._copier.tensor(offset, self._shapes[number], call.dtype)
        self._write(call, step, rows, tensor)

    def _write(
        self, call: Call, step: int, rows: int | None, tensor: torch.Tensor
    ) -> None:
        facts: dict[str, object] = {
            **{"model": call.model, "rank": call.rank, "step": step, "rows": rows},
            **{"mode": call.mode, "batch": call.batch},
            "captured": int(call.captured),
            "layer": list(call.layers) if call.layers else None,
            **dict(call.fields),
        }
        self._files.write(call.site, call.rank, tensor, facts)
