"""Asks a tree's own classes about a draft checkpoint, for ``patchkit check-draft``.

A job's scenario is ``drafts:FILE``. FILE holds a JSON list of requests, each with a
``kind``, which is the module here that answers it; ``facts["answers"]`` gets one answer
a request. What a request provokes is part of its answer, so that one process can answer
hundreds.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from patchkit.verify.probe.recorder import Recorder
from patchkit.verify.probe.runtime import Rank

PREFIX = "drafts:"


def run_requests(scenario: str, where: Rank, recorder: Recorder) -> None:
    """Answer the requests in the file that ``scenario`` names."""
    from patchkit.verify.probe.drafts.setting import Setting

    path = Path(scenario.removeprefix(PREFIX))
    setting = Setting(where, recorder)
    answers: list[Any] = []
    recorder.facts["answers"] = answers
    for number, request in enumerate(json.loads(path.read_text("utf-8"))):
        kind = request["kind"]
        recorder.begin(f"{kind} {number}")
        module = importlib.import_module(f"{__name__}.{kind}")
        answers.append(module.answer(request, setting))
