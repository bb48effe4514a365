"""``python -m patchkit.verify.probe.zygote FD``: import once, then fork per job.

Reads one JSON object a line from standard input: first the request (``target``,
``deferred``, ``folder``, ``timeout``, ``start_timeout``, ``slots``), then jobs. Writes
JSON lines to file descriptor FD: ``step``, ``ready`` or ``failed``, and for each rank
of each job ``result``. What SGLang prints goes to standard error. Ends at the end of
its input.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from patchkit.verify.jobs import Job
from patchkit.verify.probe import environment, standins
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


class Zygote:
    """Imports what no job overlays; ``say`` writes one line to the parent."""

    def __init__(self, request: dict[str, Any], out: int) -> None:
        self.request = request
        self.out = out
        self.target = Path(request["target"])
        self.ledger = Ledger(root=str(self.target))
        self.finder = OverlayFinder(request["deferred"])

    def say(self, event: str, **more: Any) -> None:
        line = json.dumps({"event": event, **more}) + "\n"
        data = line.encode("ascii")
        while data:
            data = data[os.write(self.out, data) :]

    def warm_up(self) -> bool:
        """Import; False if that failed, which the parent has then been told."""
        faulthandler.enable()
        faulthandler.dump_traceback_later(self.request["start_timeout"], exit=True)
        try:
            info = self._import()
        except Exception as error:
            self.say(
                "failed",
                step=self.ledger.phase,
                error=f"{type(error).__name__}: {error}",
                trace=traceback.format_exc().splitlines()[-30:],
            )
            return False
        faulthandler.cancel_dump_traceback_later()
        self.say("ready", info=info)
        return True

    def _step(self, name: str) -> None:
        self.ledger.phase = name
        self.say("step", name=name)

    def _import(self) -> dict[str, Any]:
        began = time.perf_counter()
        environment.prepare()
        self._step("import torch")
        import torch

        # Before any operator runs: a pool of threads does not survive a fork.
        torch.set_num_threads(1)
        self._step("import transformers")
        import transformers
        import transformers.utils  # takes stock of what is installed

        environment.shim_libraries(self.ledger)
        self._step("import sglang")
        environment.find_sglang_in(self.target)
        standins.install(self.ledger)
        sys.meta_path.insert(0, self.finder)
        import sglang

        preload = Preload(self.target, self.request["deferred"])
        preload.run(ROOTS)
        # What a worker needs beside sglang: imported here once, for all of them.
        from patchkit.verify.probe import worker  # noqa: F401

        gc.collect()
        gc.freeze()
        return {
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


def main() -> int:
    out = int(sys.argv[1])
    os.set_inheritable(out, False)
    request = json.loads(sys.stdin.buffer.readline())
    # SGLang prints to standard output, too.
    os.dup2(2, 1)
    zygote = Zygote(request, out)
    if not zygote.warm_up():
        return 4
    from patchkit.verify.probe.nursery import Nursery

    nursery = Nursery(
        Path(request["folder"]), request["slots"], request["timeout"], zygote
    )
    nursery.serve(sys.stdin.fileno(), Job.from_json)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
