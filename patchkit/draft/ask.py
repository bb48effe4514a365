"""Has the tree's own classes asked, in the probe."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from patchkit.draft.checkpoint import Checkpoint
from patchkit.draft.header import Tensor
from patchkit.draft.tree import Files
from patchkit.errors import CannotRun, Refused
from patchkit.verify.jobs import Job, Result
from patchkit.verify.session import ProbeFailed, Session
from patchkit.verify.trees import write_overlay

Request = Mapping[str, Any]
Say = Callable[[str], None]


class Asker:
    """A running probe over one tree, some files of it replaced by ``overlay``."""

    def __init__(
        self,
        python: str,
        package: Path,
        overlay: Files,
        *,
        timeout: float = 120.0,
        say: Say = lambda text: None,
    ) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="patchkit-draft-")
        self.folder = Path(self._scratch.name)
        self._overlay = write_overlay(overlay, self.folder / "overlay")
        self._asked = 0
        self.peak_mb = 0
        self._session = Session(
            python,
            package,
            list(self._overlay),
            timeout=timeout,
            start_timeout=timeout,
            say=say,
        )

    def __enter__(self) -> Asker:
        """Raises CannotRun where the tree can't be imported."""
        try:
            self._session.__enter__()
        except ProbeFailed as problem:
            self._scratch.cleanup()
            raise CannotRun(
                f"SGLang could not be imported to be asked: {problem}",
                hint="patchkit verify --only import says more",
                details=problem.trace[-6:],
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._session.__exit__()
        self._scratch.cleanup()

    def ask(self, batches: Mapping[str, Sequence[Request]]) -> dict[str, list[Any]]:
        """Answers by batch; each batch in a process of its own, side by side.

        Raises CannotRun for a batch whose process did not come back.
        """
        jobs = []
        for name, requests in batches.items():
            self._asked += 1
            file = self.folder / f"requests-{self._asked}.json"
            file.write_text(json.dumps(requests), encoding="utf-8")
            jobs.append(Job(name, self._overlay, scenario=f"drafts:{file}"))
        answers = {}
        for result in self._session.run(jobs):
            self.peak_mb = max(self.peak_mb, result.peak_mb)
            if not result.ran:
                raise _lost(result)
            answers[result.job] = result.facts["answers"]
        return answers

    def list_bins(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint, with the tensors of its ``.bin`` files. Raises Refused for
        one that torch's weights-only loader does not take."""
        files = [str(one) for one in checkpoint.bins]
        (answer,) = self.ask({"bins": [{"kind": "bins", "files": files}]})["bins"]
        if answer["failed"]:
            raise Refused(
                f"{answer['failed']} can't be read with torch's weights-only loader:"
                f" {answer['error'][:200]}",
                hint="a safetensors copy of the checkpoint needs no loader; a pickle"
                " that runs code is never loaded",
            )
        tensors = {
            name: Tensor(name, dtype, tuple(shape), Path(file))
            for name, dtype, shape, file in answer["tensors"]
        }
        if not tensors:
            raise Refused(
                f"{files[0]} holds no tensors", hint="is it the draft's checkpoint?"
            )
        return Checkpoint(
            checkpoint.folder,
            checkpoint.config,
            tensors,
            checkpoint.bins,
            answer["values"],
        )


def _lost(result: Result) -> CannotRun:
    return CannotRun(
        f"{result.job}: {result.status} in {result.step or 'its start'}:"
        f" {result.error}",
        hint="give a longer --timeout, if it hung; else report it",
        details=(*result.trace[-6:], *result.output[-6:]),
    )
