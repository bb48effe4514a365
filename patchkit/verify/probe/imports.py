"""What every worker has imported: torch, transformers, and what of SGLang does not
depend on the modules that a job overlays."""

from __future__ import annotations

import gc
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from patchkit.verify.probe import device, engine, environment, standins
from patchkit.verify.probe.engine import registry
from patchkit.verify.probe.ledger import Ledger
from patchkit.verify.probe.overlay import OverlayFinder, Preload

#: What a run needs of sglang beside the overlaid modules; see ``runtime``.
ROOTS = (
    "sglang.srt.server_args",
    "sglang.srt.runtime_context",
    "sglang.srt.managers.schedule_batch",
    "sglang.srt.distributed.parallel_state",
    "sglang.srt.layers.dp_attention",
    "sglang.srt.layers.moe",
    "sglang.srt.layers.attention.torch_native_backend",
    "sglang.srt.mem_cache.memory_pool",
    "sglang.srt.model_executor.forward_batch_info",
    "sglang.srt.model_executor.forward_context",
)


class Imports:
    """Made once in the process that workers are forked from, or once in each worker
    where that can't be. ``step`` is told what is being done."""

    def __init__(
        self, request: dict[str, Any], step: Callable[[str], None] = lambda name: None
    ) -> None:
        self.request = request
        self.target = Path(request["target"])
        self.ledger = Ledger(root=str(self.target))
        self.finder = OverlayFinder(request["deferred"])
        self.target_finder: environment.TargetFinder | None = None
        self.device = device.choose(request["device"])
        self.done = False
        self.say = step

    def prepare(self) -> None:
        """Before torch is imported."""
        environment.prepare(self.device)

    def run(self) -> dict[str, Any]:
        """Import; what there is to say of the environment."""
        began = time.perf_counter()
        self._step("import torch")
        import torch

        # Before any operator runs: a pool of threads does not survive a fork.
        torch.set_num_threads(1)
        found: dict[str, Any] = {"device": self.device.kind}
        if self.device.kind == "cuda":
            self._step("device")
            found |= device.look(torch)
            found["kernels"] = self.device.kernels
            self.device = replace(self.device, count=found["devices"])
        hiding = device.Hiding(torch, self.device, self.ledger)
        self._step("import transformers")
        import transformers
        import transformers.utils  # takes stock of what is installed

        environment.shim_libraries(self.ledger)
        self._step("import sglang")
        self.target_finder = environment.find_sglang_in(self.target)
        useless = standins.useless_on_cpu() if self.device.kind == "cpu" else {}
        standins.install(self.ledger, useless)
        sys.meta_path.insert(0, self.finder)
        import sglang

        preload = Preload(self.target, self.request["deferred"])
        roots: tuple[str, ...] = ROOTS
        if self.request.get("engine"):
            roots += engine.ROOTS
            registry.look_at_few()
        preload.run(roots)
        # What a worker needs beside sglang: imported here once, for all of them.
        from patchkit.verify.probe import worker  # noqa: F401

        hiding.imported()
        self.done = True
        return found | {
            "sglang": getattr(sglang, "__version__", "unknown"),
            "file": str(sglang.__file__),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "standins": self.ledger.created,
            "standins_called": self.ledger.called,
            "shims": self.ledger.shims,
            "dependents": preload.dependents,
            "not_preloaded": preload.failed,
            "seconds": round(time.perf_counter() - began, 3),
        }

    def when_loaded(self, tell: environment.Loaded) -> None:
        """Have ``tell`` called with each module of the target's that is imported from
        now on."""
        assert self.target_finder is not None
        self.finder.loaded = self.target_finder.loaded = tell

    def freeze(self) -> None:
        """Before forking: what is there now is no garbage, ever."""
        gc.collect()
        gc.freeze()

    def _step(self, name: str) -> None:
        self.ledger.phase = name
        self.say(name)
