"""What the probe stood in for, and what was done with it: part of every report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class StandInCalled(RuntimeError):
    """SGLang asked a stand-in to compute something, which it can't."""


@dataclass
class Ledger:
    """Record of stand-ins, in the order in which things happened.

    ``used`` counts what is answered without computing anything on a tensor
    (decorators, integer helpers); ``called`` lists every other call. Each of those
    raised ``StandInCalled``, even if SGLang then swallowed it. ``replacements``, by the
    stand-in's name, do its work in torch instead, for SGLang's engine; ``replaced``
    counts their calls.
    """

    root: str = ""
    phase: str = "start"
    created: list[dict[str, str]] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)
    called: list[dict[str, str]] = field(default_factory=list)
    shims: list[str] = field(default_factory=list)
    replacements: dict[str, Callable[..., Any]] = field(default_factory=dict)
    replaced: Counter[str] = field(default_factory=Counter)

    def create(self, name: str) -> None:
        self.created.append({"name": name, "imported_by": self.caller()})

    def call(
        self,
        path: str,
        args: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        """What ``path`` is replaced by does. Raises StandInCalled if by nothing."""
        function = self.replacements.get(path)
        if function is None:
            self.refuse(path)
            return None
        self.replaced[path] += 1
        return function(*args, **(named or {}))

    def refuse(self, path: str) -> None:
        entry = {"name": path, "phase": self.phase, "called_by": self.caller()}
        self.called.append(entry)
        raise StandInCalled(f"stand-in {path} was called by {entry['called_by']}")

    def shim(self, what: str) -> None:
        if what not in self.shims:
            self.shims.append(what)

    def called_during(self, *phases: str) -> list[dict[str, str]]:
        return [entry for entry in self.called if entry["phase"] in phases]

    def caller(self) -> str:
        """``file:line`` of the nearest frame that is neither ours nor importlib's."""
        frame: Any = sys._getframe(1)
        while frame is not None and is_machinery(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return "?"
        name: str = frame.f_code.co_filename
        if self.root and name.startswith(self.root):
            name = name[len(self.root) :].lstrip("/\\")
        elif "site-packages" in name:
            name = name.rpartition("site-packages")[2].lstrip("/\\")
        return f"{name}:{frame.f_lineno}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "created": self.created,
            "used": dict(sorted(self.used.items())),
            "called": self.called,
        }


def is_machinery(filename: str) -> bool:
    """Whether a frame of ``filename`` is the import system's or the probe's."""
    normal = filename.replace("\\", "/")
    return "importlib" in normal or "/patchkit/verify/probe/" in normal
