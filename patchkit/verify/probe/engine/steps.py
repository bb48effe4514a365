"""What a scheduler rank tells: lines of JSON in a file of its own.

A rank is killed when Engine ends, so that it can't report at its end: each line is
complete, and holds all that is to be known by then.
"""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

from patchkit.verify.probe.ledger import Ledger

_TARGET, _DRAFT = "DeepseekV2ForCausalLM", "LlamaForCausalLMEagle3"


class Steps:
    """Appends to ``folder/PID.jsonl``: one line for each verification.

    Fields: ``candidates`` and ``target`` [requests][tokens], ``accepted`` [requests],
    ``replaced`` and ``fused`` (calls so far), ``standins_called``, ``layers`` (before
    which layer the target captures a state, as the model holds it), ``handed`` (the
    passes of the draft since the line before, see ``handed``).
    """

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self.folder = folder
        self.ledger = ledger
        self.fusion: Any = None
        self.layers: list[int] | None = None
        self._handed: list[dict[str, Any]] = []

    def handed(self, told: dict[str, Any]) -> None:
        self._handed.append(told)

    def saw(
        self, candidates: list[list[int]], target: list[list[int]], accepted: list[int]
    ) -> None:
        if self.layers is None:
            self.layers = _layers()
        line = {
            "candidates": candidates,
            "target": target,
            "accepted": accepted,
            "replaced": dict(self.ledger.replaced),
            "fused": self.fusion.calls if self.fusion else 0,
            "standins_called": [
                one for one in self.ledger.called if one["phase"].startswith("forward")
            ],
            "layers": self.layers,
            "handed": self._handed,
        }
        self._handed = []
        with open(self.folder / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _layers() -> list[int] | None:
    """Of the target in this process; ``None`` if it captures nothing."""
    for found in gc.get_objects():
        if _is_target(type(found)):
            layers = getattr(found.model, "layers_to_capture", None)
            return None if layers is None else [int(one) for one in layers]
    return None


def _is_target(kind: type) -> bool:
    return any(one.__name__ == _TARGET for one in kind.__mro__)
