"""Hand-made broken trees: each is caught by the check that should catch it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import support

from patchkit import registry
from patchkit.model import Status
from patchkit.verify.evidence import Promise
from patchkit.verify.promises import Promises
from patchkit.verify.session import ProbeFailed, Session
from patchkit.verify.trees import CORE
from patchkit.verify.trials import Trials
from patchkit.verify.verdict import Check, Verdict

pytestmark = pytest.mark.probe

DEEPSEEK = "srt/models/deepseek_v2.py"
LOGITS = "srt/layers/logits_processor.py"
DRAFT = "srt/models/llama_eagle3.py"
SPEAKER = "srt/patchkit_tap/speaker.py"
CHECKS = ["import", "weights", "capture", "draft", "decode", "gate-off", "gate-on"]
APPEND = r"aux_hidden_states\.append\(hidden_states \+ residual\)"
FC = r"hidden_states = self\.fc\(hidden_states\)"

#: name -> file, what to replace once, by what, the check that must fail
BROKEN = {
    "no residual": (
        *(DEEPSEEK, APPEND, "aux_hidden_states.append(hidden_states)"),
        "capture",
    ),
    "in place": (
        *(DEEPSEEK, APPEND, "aux_hidden_states.append(hidden_states.add_(residual))"),
        "capture",
    ),
    "ids off by one": (DEEPSEEK, r"val \+ 1 for val in", "val for val in", "capture"),
    "default ids": (DEEPSEEK, r"\[2, num_layers", "[3, num_layers", "capture"),
    "reversed": (LOGITS, r"(?<=torch\.cat\()aux_hidden_states", r"\g<0>[::-1]",
                 "capture"),
    "one dropped": (LOGITS, r"(?<=torch\.cat\()aux_hidden_states", r"\g<0>[1:]",
                    "capture"),
    "last rows": (
        *(LOGITS, r"\[hidden\[last_index\] for", "[hidden[last_index - 1] for"),
        "capture",
    ),
    "fc skipped": (DRAFT, FC, "hidden_states = hidden_states[:, :64]", "draft"),
    "fc halved": (DRAFT, FC, r"\g<0> / 2", "draft"),
    "d2t lost": (DRAFT, r'"d2t" in name', '"no" in name', "draft"),
    "weight dropped": (
        *(DRAFT, r"def load_weights\(self, weights[^\n]*\n"),
        r"\g<0>        weights = [w for w in weights if 'o_proj' not in w[0]]" + "\n",
        "weights",
    ),
    "syntax": (DRAFT, r"\Aimport|\nimport", "\nimport (", "import"),
    "no such module": (DEEPSEEK, r"\nimport torch\n", r"\g<0>import nowhere\n",
                       "import"),
    "print": (DEEPSEEK, APPEND, r"\g<0>; print(hidden_states)", "gate-off"),
    "item": (DEEPSEEK, APPEND, r"\g<0>; residual.sum().item()", "gate-off"),
    "hang": (DRAFT, FC, "import time; time.sleep(600)", "draft"),
    "crash": (DRAFT, FC, "import os; os.kill(os.getpid(), 11)", "draft"),
    "raise": (DRAFT, FC, "raise RuntimeError('here')", "draft"),
    "tap changes its tensor": (
        *(SPEAKER, r"statistics = measure\(tensor\)", r"\g<0>; tensor.mul_(1.5)"),
        "gate-on",
    ),
    "tap raises": (SPEAKER, r"statistics = measure\(tensor\)", "1 / 0", "gate-on"),
    "tap is wrong": (
        *(SPEAKER, r"(statistics = measure)\(tensor\)", r"\1(tensor * 2)"),
        "gate-on",
    ),
    "tap is silent": (
        *(SPEAKER, r"(?<=def _observe\()(?s:.*?)-> None:\n", r"\g<0>    return\n"),
        "gate-on",
    ),
    "tap speaks always": (
        *("srt/patchkit_tap/settings.py", r"enabled=environ[^\n]*", "enabled=True,"),
        "gate-off",
    ),
}  # fmt: skip


def patched_files(stock: Mapping[str, bytes]) -> dict[str, bytes]:
    """The stock files with debug-logging, and the tap."""
    from patchkit import engine

    info = registry.Registry().get("debug-logging")
    recipe = registry.load(info)
    files = dict(registry.tap_files())
    for path in CORE:
        outcome = engine.apply(recipe, stock[path], path, {})
        assert outcome.status is Status.CHANGED
        files[path] = outcome.source
    return files


PROMISES = (
    Promise("deepseek_v2.aux", ("target.states",)),
    Promise("logits_processor.concat", ("target.joined", "draft.stream")),
    Promise("llama_eagle3.fc_in", ("draft.received",)),
    Promise("llama_eagle3.fc_out", ("draft.entering",)),
)


def test_promises_are_those_of_the_recipe() -> None:
    promised = dict(registry.Registry().get("debug-logging").promises)
    promised.pop("deepseek_v2.layer")  # off by default
    assert promised == {one.site: " ".join(one.views) for one in PROMISES}


@pytest.fixture(scope="module")
def judged(probe_python: str) -> dict[str, dict[str, Check]]:
    """All variants in one probe, each on top of the patched 0.5.9."""
    package = support.release_tree("0.5.9") / "sglang"
    stock = {path: (package / path).read_bytes() for path in CORE}
    patched = patched_files(stock)
    variants = {"unbroken": patched}
    for name, (file, pattern, new, _) in BROKEN.items():
        text, count = re.subn(pattern, new, patched[file].decode(), count=1)
        assert count == 1, f"{name}: {pattern} is not in {file}"
        variants[name] = {**patched, file: text.encode()}
    baseline = {**dict.fromkeys(patched), **stock}
    with Trials(
        probe_python, package, baseline, promises=Promises(PROMISES), timeout=20
    ) as trials:
        return dict(trials.judge(variants, CHECKS))


def test_the_unbroken_tree_passes(judged: dict[str, dict[str, Check]]) -> None:
    found = judged["unbroken"]
    assert {one.verdict for one in found.values()} == {Verdict.PASS}, found


@pytest.mark.parametrize("name", BROKEN)
def test_caught_by(name: str, judged: dict[str, dict[str, Check]]) -> None:
    check = judged[name][BROKEN[name][-1]]
    assert check.verdict is Verdict.FAIL, check
    assert judged[name]["import"].verdict is not Verdict.FAIL or name in (
        "syntax",
        "no such module",
    )


def test_a_hung_worker_leaves_its_stacks(judged: dict[str, dict[str, Check]]) -> None:
    check = judged["hang"]["draft"]
    assert check.hung and "no end after 20 s" in check.reason
    assert any("llama_eagle3.py" in line for line in check.details)


def test_a_crash_is_named(judged: dict[str, dict[str, Check]]) -> None:
    check = judged["crash"]["draft"]
    assert "forward draft: died: killed by SIGSEGV" in check.reason


@pytest.fixture
def fake_tree(tmp_path: Path) -> Iterator[Path]:
    package = tmp_path / "sglang"
    package.mkdir()
    yield package


def test_a_set_up_that_hangs_is_killed_with_its_stacks(
    probe_python: str, fake_tree: Path
) -> None:
    (fake_tree / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    session = Session(probe_python, fake_tree, [], timeout=60, start_timeout=20)
    with pytest.raises(ProbeFailed) as told, session:
        pass
    assert told.value.step == "import sglang" and told.value.hung
    assert "no end after 20 s" in told.value.error
    assert any("__init__.py" in line for line in told.value.trace)


def test_a_set_up_that_ends_the_process_is_told(
    probe_python: str, fake_tree: Path
) -> None:
    (fake_tree / "__init__.py").write_text("import os\nos._exit(3)\n")
    with (
        pytest.raises(ProbeFailed) as told,
        Session(probe_python, fake_tree, []),
    ):
        pass
    assert told.value.step == "import sglang"
    assert "ended" in told.value.error
