"""The probe's passes: extend, draft extend, decode; and the report about them."""

from __future__ import annotations

import contextlib
import importlib
import platform
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchkit.verify.probe import environment, standins
from patchkit.verify.probe.ledger import Ledger

MODULES = {
    "deepseek_v2": "sglang.srt.models.deepseek_v2",
    "llama_eagle3": "sglang.srt.models.llama_eagle3",
    "logits_processor": "sglang.srt.layers.logits_processor",
}
#: Steps that run the models: no stand-in may be called in them.
PASSES = ("extend", "draft", "decode")


class Probe:
    """One run over one target. ``report`` is complete at any time it is read."""

    def __init__(self, parent: Path, dtype: str, started: float) -> None:
        self.parent = parent
        self.dtype_name = dtype
        self.started = started
        self.ledger = Ledger(root=str(parent))
        self.report: dict[str, Any] = {
            "schema": 1,
            "verdict": "CANNOT RUN",
            "target": str(parent),
            "dtype": dtype,
            "python": platform.python_version(),
            "problems": [],
            "digest": {},
            "observations": [],
            "timings": {},
        }

    def run(self) -> dict[str, Any]:
        """Do all steps. A set-up step that can't be done is CANNOT RUN, never a pass.

        What goes wrong in a forward pass is FAIL: the models were there and ran.
        """
        try:
            with tempfile.TemporaryDirectory(prefix="patchkit-probe-") as folder:
                self._steps(str(Path(folder, "rendezvous")))
        except Exception as error:
            self.report["failed_step"] = {
                "step": self.ledger.phase,
                "error": f"{type(error).__name__}: {error}",
                "traceback": traceback.format_exc().splitlines()[-30:],
            }
            self.problem(f"{self.ledger.phase}: {type(error).__name__}: {error}")
            if self.ledger.phase in PASSES:
                self.report["verdict"] = "FAIL"
        else:
            self.report["verdict"] = "FAIL" if self.report["problems"] else "PASS"
        self.report["standins"] = self.ledger.as_dict()
        self.report["shims"] = self.ledger.shims
        self.report["timings"]["total"] = round(time.time() - self.started, 3)
        self.report["peak_rss_mb"] = _peak_rss_mb()
        return self.report

    def problem(self, text: str) -> None:
        self.report["problems"].append(text)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        self.ledger.phase = name
        begin = time.perf_counter()
        yield
        seconds = time.perf_counter() - begin
        self.report["timings"][name] = round(seconds, 3)

    def _steps(self, rendezvous: str) -> None:
        with self.step("import torch"):
            import torch

            self.report["torch"] = torch.__version__
        with self.step("import transformers"):
            import transformers
            import transformers.utils  # takes stock of what is installed

            self.report["transformers"] = transformers.__version__
            environment.shim_libraries(self.ledger)
        with self.step("import sglang"):
            self._import_sglang()

        from patchkit.verify.probe.passes import Passes

        dtype: torch.dtype = getattr(torch, self.dtype_name)
        passes = Passes(self, dtype, rendezvous)
        passes.run()
        for entry in self.ledger.called_during(*PASSES):
            self.problem(
                f"{entry['phase']}: stand-in {entry['name']} was called by "
                f"{entry['called_by']}"
            )

    def _import_sglang(self) -> None:
        environment.find_sglang_in(self.parent)
        standins.install(self.ledger, standins.useless_on_cpu())
        import sglang

        self.report["sglang"] = getattr(sglang, "__version__", "unknown")
        files = {}
        for short, name in MODULES.items():
            files[short] = str(importlib.import_module(name).__file__)
        self.report["files"] = files
        for file in files.values():
            if not Path(file).is_relative_to(self.parent):
                raise ImportError(f"{file} was imported, which is not in the target")


def _peak_rss_mb() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)
