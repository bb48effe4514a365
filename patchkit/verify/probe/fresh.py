"""``python -m patchkit.verify.probe.fresh FILE``: a worker that imports for itself.

Where SGLang's imports have initialised CUDA, a forked worker can't use it. The fork
then becomes this program, in the same process, so that whoever watches over it need
not know.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from patchkit.verify.jobs import Job


def become(
    request: dict[str, Any], job: Job, rank: int, folder: Path, kept: int
) -> NoReturn:
    """Replace this process. ``kept`` is a file descriptor that must outlive that."""
    value = {"request": request, "job": job.to_json(), "rank": rank}
    file = folder / f"{rank}.request"
    file.write_text(json.dumps(value), encoding="utf-8")
    os.set_inheritable(kept, True)
    os.execv(sys.executable, [sys.executable, "-m", __name__, str(file)])


def main() -> NoReturn:
    file = Path(sys.argv[1])
    value = json.loads(file.read_text("utf-8"))
    from patchkit.verify.probe.imports import Imports

    imports = Imports(value["request"])
    imports.prepare()
    from patchkit.verify.probe import worker

    worker.run(Job.from_json(value["job"]), value["rank"], file.parent, imports)


if __name__ == "__main__":
    main()
