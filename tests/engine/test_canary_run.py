"""``patchkit canary run``: the pair, an engine and the question, all here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import enginekit as kit
import pytest
import support

from patchkit.canary.ask import Server
from patchkit.canary.check import check
from patchkit.canary.folder import write_pair
from patchkit.canary.plan import make_plan
from patchkit.errors import CannotRun
from patchkit.verify import canary

SERVER = os.environ.get("PATCHKIT_SERVER_PYTHON", "")
ONPATH = support.ROOT / "tests" / "watch" / "server" / "onpath"
ON_CPU = (
    *("--device", "cpu", "--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch", "--grammar-backend", "none"),
    *("--max-total-tokens", "4096", "--max-running-requests", "4"),
    *("--mem-fraction-static", "0.5", "--disable-cuda-graph"),
)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--draft", "drafts"], "draft, draft-ids"),
        (["--dtype", "int8"], "float32"),
        (["--", "--page-size", "16"], "no server is started on a CPU"),
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str], words: str) -> None:
    tree = support.stock("0.5.9")
    done = support.run_patchkit("canary", "run", "--target", tree, *options)
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.engines
def test_a_release_on_this_cpu() -> None:
    tree = support.release_tree("0.5.23")
    more = ("--python", kit.PYTHON, "--tp", "2", "--dtype", "bfloat16")
    done = support.run_patchkit("canary", "run", "--target", tree, *more)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("RIGHT") and "histogram [0, 0, 0, 120]" in done.stdout


@pytest.mark.engines
def test_an_engine_that_ends_is_a_fault(tmp_path: Path) -> None:
    tree = tmp_path / "0.5.9"
    shutil.copytree(support.release_tree("0.5.9"), tree, copy_function=os.link)
    file = tree / "sglang/srt/models/llama_eagle3.py"
    text = file.read_text()
    file.unlink()
    file.write_text(text.replace("hidden_states = self.fc(hidden_states)", "pass"))
    done = support.run_patchkit(
        "canary", "run", "--target", tree, "--python", kit.PYTHON
    )
    assert done.returncode == 1, done.stderr
    words = "FAULT  fc is not applied: 1152 columns reach the draft's layer; the engine"
    assert done.stdout.startswith(words), done.stdout
    assert "srt/models/llama_eagle3.py, line" in done.stdout
    assert "0.00" not in done.stdout and len(done.stdout.splitlines()) < 16


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> canary.Asking:
    """As on CUDA devices, of a server that runs on this CPU."""
    monkeypatch.setenv("PYTHONPATH", str(ONPATH))
    for name in ("SGLANG_USE_CPU_ENGINE", "TORCHDYNAMO_DISABLE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    asking = canary.Asking(make_plan(), timeout=120, arguments=ON_CPU)
    write_pair(asking.plan, tmp_path / "pair")
    return asking


@pytest.mark.servers
@pytest.mark.skipif(not SERVER, reason="needs PATCHKIT_SERVER_PYTHON")
def test_a_server_is_started_asked_and_ended(
    asking: canary.Asking, tmp_path: Path
) -> None:
    package = support.release_tree("0.5.9") / "sglang"
    before = set(kit.below(os.getpid()))
    where = (package, SERVER, asking, tmp_path / "pair", lambda text: None)
    with canary._server(*where) as url:
        started = set(kit.below(os.getpid())) - before
        assert len(started) >= 3
        held = kit.ports(started)
        checked = check(Server(url, timeout=120), tmp_path / "pair", lambda text: None)
        assert checked.verdict.right, checked
        # ranks leave the process group; they end with whoever made them
    assert kit.wait_for(lambda: not kit.alive(started), 20)
    assert held and not held & kit.listening()


@pytest.mark.servers
@pytest.mark.skipif(not SERVER, reason="needs PATCHKIT_SERVER_PYTHON")
def test_a_server_that_does_not_start(asking: canary.Asking, tmp_path: Path) -> None:
    package = support.release_tree("0.5.9") / "sglang"
    wrong = canary.Asking(asking.plan, arguments=("--no-such-argument",))
    where = (package, SERVER, wrong, tmp_path / "pair", lambda text: None)
    ended = pytest.raises(CannotRun, match="did not start: ended with")
    with ended as found, canary._server(*where):
        pass
    assert any("no-such-argument" in line for line in found.value.details)
