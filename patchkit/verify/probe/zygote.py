"""``python -m patchkit.verify.probe.zygote FD``: import once, then fork per job.

Reads one JSON object a line from standard input: first the request (``target``,
``deferred``, ``device``, ``fresh``, ``engine``, ``folder``, ``keep``, ``timeout``,
``start_timeout``, ``slots``), then jobs. Writes JSON lines to file descriptor FD:
``step``, ``ready`` or ``failed``, and for each rank of each job ``result``. What SGLang
prints goes to standard error. Ends at the end of its input.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from patchkit.verify.jobs import Job
from patchkit.verify.probe.device import NoDevice
from patchkit.verify.probe.imports import Imports


class Zygote:
    """Imports what no job overlays; ``say`` writes one line to the parent."""

    def __init__(self, request: dict[str, Any], out: int) -> None:
        self.request = request
        self.out = out
        self.imports = Imports(request, lambda name: self.say("step", name=name))

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
            self.imports.prepare()
            info = self.imports.run()
        except NoDevice as reason:
            self._failed(str(reason), [])
            return False
        except Exception as error:
            trace = traceback.format_exc().splitlines()[-30:]
            self._failed(f"{type(error).__name__}: {error}", trace)
            return False
        faulthandler.cancel_dump_traceback_later()
        self.imports.freeze()
        self.say("ready", info=info)
        return True

    def _failed(self, error: str, trace: list[str]) -> None:
        step = self.imports.ledger.phase
        self.say("failed", step=step, error=error, trace=trace)


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
        Path(request["folder"]),
        request["slots"],
        request["timeout"],
        request["keep"],
        zygote,
    )
    nursery.serve(sys.stdin.fileno(), Job.from_json)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
