"""What the parent asks of the probe, and what comes back. Standard library only.

Both sides import this module: the parent never imports torch, and the probe may run
under another interpreter than the parent.
"""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The three files that hold EAGLE-3, by their short names.
MODULES = {
    "deepseek_v2": "sglang.srt.models.deepseek_v2",
    "llama_eagle3": "sglang.srt.models.llama_eagle3",
    "logits_processor": "sglang.srt.layers.logits_processor",
}

#: Steps of a worker in which the models run: what goes wrong there is a FAIL.
FORWARD = "forward"
IMPORT = "import the patched modules"


@dataclass(frozen=True)
class Values:
    """A tensor as the parent sees it: float64 values, which hold float32 and bfloat16
    exactly, so that bit-equality can be judged without torch."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes

    def numbers(self) -> array[float]:
        found = array("d")
        found.frombytes(self.data)
        return found

    def distance(self, other: Values) -> float:
        """Largest absolute difference; infinite where the shapes differ, or a NaN is
        on one side only."""
        if self.shape != other.shape:
            return math.inf
        worst = 0.0
        for a, b in zip(self.numbers(), other.numbers()):
            if a == b or (math.isnan(a) and math.isnan(b)):
                continue
            gap = abs(a - b)
            worst = math.inf if math.isnan(gap) else max(worst, gap)
        return worst

    def magnitude(self) -> float:
        """Largest finite absolute value; 0 for an empty tensor."""
        return max((abs(x) for x in self.numbers() if math.isfinite(x)), default=0.0)

    def total(self) -> float:
        """Sum of absolute values: the golden statistic."""
        return math.fsum(abs(x) for x in self.numbers())

    def finite(self) -> bool:
        return all(math.isfinite(x) for x in self.numbers())

    def to_json(self) -> dict[str, Any]:
        data = base64.b64encode(self.data).decode("ascii")
        return {"shape": list(self.shape), "dtype": self.dtype, "data": data}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Values:
        data = base64.b64decode(value["data"])
        return Values(tuple(value["shape"]), value["dtype"], data)


@dataclass(frozen=True)
class Job:
    """One run of the models in a process of its own (``ranks`` of them).

    ``overlay``: module -> the file to take it from, ``None`` if it must look absent.
    ``scenario``: ``full`` (every call), ``short`` (extend, draft, decode) or ``order``
    (the setters in the order of the server's start). ``environment`` is set before
    any overlaid module is imported. ``draft``: whether there is one to run.
    """

    name: str
    overlay: Mapping[str, str | None] = field(default_factory=dict)
    scenario: str = "full"
    dtype: str = "float32"
    ranks: int = 1
    fusion: bool = False
    draft: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        found = dict(vars(self))
        found["overlay"] = dict(self.overlay)
        found["environment"] = dict(self.environment)
        return found

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Job:
        return Job(**value)


@dataclass(frozen=True)
class Result:
    """What one rank of a job did.

    ``status``: ``ran``; ``failed`` (an exception outside a forward call, in ``step``);
    ``refused`` (it could not be run here, says ``error``); ``died`` (a signal, or an
    exit without a report); ``hung`` (killed by us).
    ``trace``: its stacks or traceback. ``output``: the last lines it printed.
    """

    job: str
    rank: int
    status: str
    step: str = ""
    error: str = ""
    trace: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    seconds: float = 0.0
    peak_mb: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Values] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        return self.status == "ran"

    def calls(self) -> dict[str, Mapping[str, Any]]:
        """The forward calls, by name."""
        return {one["call"]: one for one in self.facts.get("calls", ())}

    def to_json(self) -> dict[str, Any]:
        found = dict(vars(self))
        found["tensors"] = {k: v.to_json() for k, v in self.tensors.items()}
        return found

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Result:
        found = dict(value)
        tensors = found.get("tensors", {})
        found["tensors"] = {k: Values.from_json(v) for k, v in tensors.items()}
        for name in ("trace", "output"):
            found[name] = tuple(found.get(name, ()))
        return Result(**found)


def module_name(path: str) -> str:
    """``srt/layers/x.py`` (relative to the package) -> ``sglang.srt.layers.x``."""
    parts = path.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(["sglang", *parts])
