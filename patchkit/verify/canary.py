"""``patchkit canary run``: the pair, an engine, and the question, all here.

On a CPU SGLang's offline Engine runs in the probe. On CUDA devices a server of the
tree's own is started, with its compiled kernels, asked over HTTP, and ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.canary.ask import Server
from patchkit.canary.check import LONG, Checked, check
from patchkit.canary.code import counting
from patchkit.canary.diagnose import Verdict, diagnose
from patchkit.canary.ended import frames, in_words
from patchkit.canary.folder import PROMPTS, write_pair
from patchkit.canary.measured import Measured
from patchkit.canary.plan import Plan
from patchkit.canary.text import launch_command
from patchkit.errors import CannotRun
from patchkit.target import read_version
from patchkit.verify import pair
from patchkit.verify.answers import measured
from patchkit.verify.interpreter import choose_python
from patchkit.verify.jobs import FORWARD, Job, Result
from patchkit.verify.probe.orphans import die_with_parent
from patchkit.verify.scratch import Scratch
from patchkit.verify.session import ProbeFailed, Session

Say = Callable[[str], None]
#: Lines of a server's log, and of a stack.
_TAIL, _FEW = 40, 8


@dataclass(frozen=True)
class Asking:
    """``plan``: of the pair. ``draft``: which of its folders. ``python``: the
    interpreter, if named. ``timeout``: seconds, for the start and for the answers.
    ``arguments``: further ones of the server's."""

    plan: Plan
    draft: str = "draft"
    device: str = "cpu"
    python: str | None = None
    timeout: float = 120.0
    arguments: tuple[str, ...] = ()


def run_canary(package: Path, asking: Asking, say: Say) -> Checked:
    """Raises CannotRun where there is no python for it, or nothing starts."""
    python, _ = choose_python(package, asking.python, asking.device)
    with Scratch("canary") as folder:
        out = folder / "pair"
        say("making the pair")
        write_pair(asking.plan, out)
        if asking.device == "cpu":
            return _by_engine(package, python, asking, out, say)
        with _server(package, python, asking, out, say) as url:
            return check(Server(url, timeout=asking.timeout), out, say)


# -- on a CPU -------------------------------------------------------------------------


def _by_engine(
    package: Path, python: str, asking: Asking, out: Path, say: Say
) -> Checked:
    prompts = [counting(*one) for one in PROMPTS]
    alone = tuple(
        pair.Generate(f"alone-{n}", [prompt], LONG) for n, prompt in enumerate(prompts)
    )
    together = pair.Generate("together", prompts, LONG)
    variant = pair.Variant(asking.draft, asking.plan.tp, (*alone, together))
    request = variant.request(str(out)) | {"dtype": asking.plan.dtype}
    (out / "request.json").write_text(json.dumps(request))
    job = Job("canary", scenario=f"engine:{out / 'request.json'}")
    try:
        with Session(
            python,
            package,
            [],
            timeout=asking.timeout,
            start_timeout=asking.timeout,
            engine=True,
            say=say,
        ) as session:
            say("starting the engine")
            (result,) = session.run([job])
    except ProbeFailed as problem:
        if problem.hung:
            raise CannotRun(
                f"SGLang was not imported in {asking.timeout:g} s: {problem.step}",
                hint="give more with --timeout",
            ) from None
        raise CannotRun(
            f"SGLang can't be imported here: {problem}",
            hint="patchkit verify says more",
            details=problem.trace[-_FEW:],
        ) from None
    _expect_started(result, asking)
    one = measured(result, replace(variant, generate=alone), asking.plan)
    again = measured(result, replace(variant, generate=(together,)), asking.plan)
    arguments = {
        **{"device": "cpu", "speculative_num_steps": pair.STEPS},
        **{"dtype": asking.plan.dtype, "tp_size": asking.plan.tp},
    }
    verdict = _verdict(result, one, again)
    return Checked(read_version(package), arguments, one, again, verdict)


def _expect_started(result: Result, asking: Asking) -> None:
    """Raises CannotRun for an engine that never came to generate."""
    if result.ran or result.step.startswith(FORWARD):
        return
    if result.status == "hung":
        raise CannotRun(
            f"the engine did not start in {asking.timeout:g} s: {result.step}",
            hint="give more with --timeout",
        )
    raise CannotRun(
        f"the engine did not start: {result.step or 'start'}: {result.error}",
        hint="patchkit verify says more",
        details=frames(result.trace) or result.trace[-_FEW:],
    )


def _verdict(result: Result, alone: Measured, together: Measured) -> Verdict:
    assert alone.plan is not None
    errors = [call["error"] for call in result.calls().values() if call["error"]]
    if not result.ran or errors:
        error = result.error or (errors[0] if errors else result.status)
        words = in_words(error, alone.plan.hidden)
        if words:
            said = f"{words}; the engine ends"
            seen = (error, *frames(result.trace))
        else:
            how = "hangs" if result.status == "hung" else "ends"
            said = f"the engine {how} in the model's forward: {error}"
            seen = frames(result.trace)
        return Verdict(False, said, evidence=seen)
    found = diagnose(alone)
    if found.right and not diagnose(together).right:
        found = diagnose(together)
        found = replace(found, text=f"only with several requests at once: {found.text}")
    return found


# -- on CUDA devices ------------------------------------------------------------------


@contextlib.contextmanager
def _server(
    package: Path, python: str, asking: Asking, out: Path, say: Say
) -> Iterator[str]:
    """The URL of a server that answers; it is ended afterwards, with all it started."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    words = shlex.split(launch_command(asking.plan, out, asking.draft))
    command = [python, *words[1:], "--host", "127.0.0.1", "--port", str(port)]
    command += asking.arguments
    lane = os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])
    parent = os.getpid()
    with open(out / "server.log", "wb+") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": lane.rstrip(os.pathsep)},
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(parent),
        )
        try:
            say("starting the server")
            url = f"http://127.0.0.1:{port}"
            _wait(process, f"{url}/health", out / "server.log", asking.timeout)
            yield url
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(
    process: subprocess.Popen[bytes], url: str, log: Path, timeout: float
) -> None:
    """Until ``url`` answers 200. Raises CannotRun if it never does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), opener.open(url, timeout=30) as answer:
            if answer.status == 200:
                return
        time.sleep(0.5)
    ended = process.poll()
    said = log.read_text("utf-8", "replace").splitlines()
    why = f"ended with {ended}" if ended is not None else f"no answer in {timeout:g} s"
    raise CannotRun(
        f"the server did not start: {why}",
        hint="patchkit canary make OUT prints the command, to start it by hand",
        details=tuple(said[-_TAIL:]),
    )
