"""A server of SGLang's on a CPU, in every process of it: for its spawned ranks, which
nothing is forked into. Called from a ``sitecustomize`` when sglang is first imported.
"""

from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path

from patchkit.verify.probe import environment, standins
from patchkit.verify.probe.engine.mends import Mends, mend_torch
from patchkit.verify.probe.ledger import Ledger


def prepare() -> environment.TargetFinder:
    """Stand-ins and mends, for the sglang that ``sys.path`` leads to; its finder, from
    which on that sglang comes. Raises ModuleNotFoundError if there is none."""
    spec = importlib.machinery.PathFinder.find_spec("sglang")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("no sglang on sys.path", name="sglang")
    parent = Path(spec.origin).parents[1]
    ledger = Ledger(root=str(parent))
    import transformers.utils  # noqa: F401  # takes stock of what is installed

    environment.shim_libraries(ledger)
    mend_torch(ledger)
    finder = environment.find_sglang_in(parent)
    standins.install(ledger, standins.useless_on_cpu())
    finder.loaded = Mends(ledger, lambda *_: None).loaded
    sys.path.remove(str(parent))  # which it was on already
    return finder
