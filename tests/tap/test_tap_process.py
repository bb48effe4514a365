"""Ranks, steps, files, forks: what depends on the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]


def run(tmp_path, body, **environment):
    """``body`` in a fresh interpreter, where ``tap`` is sglang.srt.patchkit_tap."""
    package = tmp_path / "tree" / "sglang" / "srt" / "patchkit_tap"
    package.parent.mkdir(parents=True)
    package.symlink_to(ROOT / "patchkit" / "tap", target_is_directory=True)
    script = "import torch\nfrom sglang.srt import patchkit_tap as tap\n"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("EAGLE3_")}
    return subprocess.run(
        [sys.executable, "-c", script + textwrap.dedent(body)],
        env={**clean, "PYTHONPATH": str(tmp_path / "tree"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def records(folder):
    found = {}
    for file in sorted(Path(folder).iterdir()):
        lines = file.read_text().splitlines()
        found[file.name] = [
            json.loads(line, parse_constant=pytest.fail) for line in lines
        ]
    return found


def test_every(load, said):
    tap = load(EVERY="3")
    for _ in range(7):
        for model in ("a", "b"):
            tap.begin(model, None)
            tap.tap(model, torch.ones(1))
    assert [(line["site"], line["step"]) for line in said.lines] == [
        (model, step) for step in "147" for model in "ab"
    ]


def test_every_computes_nothing_between(load, monkeypatch):
    tap = load(EVERY="2")
    calls = []
    speaker = sys.modules[f"{tap.__name__}.speaker"]
    monkeypatch.setattr(speaker, "measure", lambda t: calls.append(t))
    for _ in range(4):
        tap.begin("m", None)
        tap.tap("x", torch.ones(1))
    assert len(calls) == 2


def test_sites(load, said):
    tap = load(SITES="*.fc_*,deepseek_v2.aux")
    for site in ("deepseek_v2.aux", "deepseek_v2.layer", "d.fc_in", "fc_in"):
        tap.tap(site, torch.ones(1))
    assert [line["site"] for line in said.lines] == ["deepseek_v2.aux", "d.fc_in"]


@pytest.mark.parametrize("rank,lines", [("0", 1), ("1", 0), ("3", 1), ("x", 1)])
def test_ranks(load, said, monkeypatch, rank, lines):
    tap = load(RANKS="0,3")
    # After the import: the rank is not known yet when a module is imported.
    monkeypatch.setenv("RANK", rank)
    tap.tap("x", torch.ones(1))
    assert len(said.lines) == lines
    if lines:
        assert said.only["rank"] == (rank if rank.isdigit() else "0")


def test_rank_of_torch_distributed_wins(load, said, monkeypatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
    load().tap("x", torch.ones(1))
    assert said.only["rank"] == "2"


def test_json_lines(load, tmp_path):
    folder = tmp_path / "deep" / "taps"
    tap = load(DIR=str(folder))
    tap.begin("deepseek_v2", None)
    tensor = torch.tensor([[3.0, 4.0, float("nan")]], dtype=torch.bfloat16)
    tap.tap("x", tensor, layer=2, bad=float("inf"), widths=[1, 2], unknown=None)
    tap.tap("x", torch.ones(2, dtype=torch.complex64))
    ((name, (first, second)),) = records(folder).items()
    assert name == f"taps-rank0-pid{os.getpid()}.jsonl"
    assert first.pop("time") > 1.6e9
    assert first == {
        "site": "x",
        "model": "deepseek_v2",
        "rank": 0,
        "step": 1,
        "layer": 2,
        "shape": [1, 3],
        "dtype": "bfloat16",
        "norm": 5.0,
        "mean": 3.5,
        "absmax": 4.0,
        "nonfinite": 1,
        "bad": None,
        "widths": [1, 2],
        "unknown": None,
    }
    assert second["stats"] == "unsupported"
    assert second["norm"] is None


def test_json_lines_are_there_at_once(load, tmp_path):
    tap = load(DIR=str(tmp_path / "taps"))
    for count in (1, 2, 3):
        tap.tap("x", torch.ones(1))
        assert sum(map(len, records(tmp_path / "taps").values())) == count


def test_a_rank_that_changes_and_returns_loses_nothing(load, tmp_path, monkeypatch):
    tap = load(DIR=str(tmp_path / "taps"))
    for rank in "0110":
        monkeypatch.setenv("RANK", rank)
        tap.tap("x", torch.ones(1))
    assert list(map(len, records(tmp_path / "taps").values())) == [2, 2]


def test_no_file_where_nothing_is_said(load, tmp_path):
    load(DIR=str(tmp_path / "taps"), SITES="y").tap("x", torch.ones(1))
    assert not (tmp_path / "taps").exists()


@pytest.mark.parametrize("obstacle", ["file", "null"])
def test_folder_that_cannot_be_written(load, said, tmp_path, monkeypatch, obstacle):
    (tmp_path / "file").write_text("in the way")
    tap = load(DIR=str(tmp_path / "file" / "taps"))
    if obstacle == "null":
        speaker = sys.modules[f"{tap.__name__}.speaker"]
        speaker.STATE.process.json._directory = "a\0b"
    for _ in range(3):
        tap.tap("x", torch.ones(1))
    assert len(said.lines) == 3
    assert len([text for text in said.texts if "no JSON lines under" in text]) == 1


def test_full_disk(load, said):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    tap = load(DIR="/unused")
    emit = sys.modules[f"{tap.__name__}.emit"]
    speaker = sys.modules[f"{tap.__name__}.speaker"]
    lines = speaker.STATE.process.json
    assert isinstance(lines, emit.JsonLines)
    lines._open = lambda *_: os.open("/dev/full", os.O_WRONLY)
    for _ in range(3):
        tap.tap("x", torch.ones(1))
    assert len([text for text in said.texts if "No space left" in text]) == 1
    assert len(said.lines) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_writes_its_own_file(tmp_path):
    run(
        tmp_path,
        """
        import os
        tap.begin("m", None)
        tap.tap("x", torch.ones(1))
        for rank in "12":
            if os.fork() == 0:
                os.environ["RANK"] = rank
                tap.tap("x", torch.ones(1))
                os._exit(0)
            os.wait()
        tap.tap("x", torch.ones(1))
        """,
        EAGLE3_DEBUG="1",
        EAGLE3_DEBUG_DIR=str(tmp_path / "taps"),
    )
    found = records(tmp_path / "taps")
    assert sorted(map(len, found.values())) == [1, 1, 2]
    assert sorted(name.split("-")[1] for name in found) == ["rank0", "rank1", "rank2"]
    assert len({name.split("-pid")[1] for name in found}) == 3
    for name, lines in found.items():
        assert {f"rank{line['rank']}" for line in lines} == {name.split("-")[1]}


def test_as_sglang_would_use_it(tmp_path):
    """Under SGLang's name, with its logging set up after the import."""
    done = run(
        tmp_path,
        """
        import logging, sys
        logging.basicConfig(
            level="INFO", format="[%(asctime)s TP3] %(message)s",
            stream=sys.stdout, force=True,
        )
        if tap.ENABLED:
            tap.begin("deepseek_v2", None)
            tap.tap("x", torch.ones(2, 3))
        print(sorted(name for name in sys.modules if "patchkit" in name))
        """,
        EAGLE3_DEBUG="1",
        RANK="3",
    )
    line, modules = done.stdout.splitlines()
    assert " TP3] EAGLE3_DEBUG[x] rank=3 step=1 shape=2x3 dtype=float32 " in line
    assert "'sglang.srt.patchkit_tap.sites'" in modules
    assert "'patchkit'" not in modules


def test_seen_without_any_logging_set_up(tmp_path):
    body = """
    import logging
    logging.getLogger("sglang").setLevel(logging.INFO)
    tap.tap("x", torch.ones(2))
    """
    done = run(tmp_path, body, EAGLE3_DEBUG="1")
    assert "EAGLE3_DEBUG[x] rank=0 step=1 shape=2 " in done.stderr


def test_bad_environment_does_not_break_the_import(tmp_path):
    done = run(
        tmp_path,
        "tap.tap('x', torch.ones(2)); print('alive')",
        EAGLE3_DEBUG="1",
        EAGLE3_DEBUG_EVERY="x",
        EAGLE3_DEBUG_RANKS="x",
        EAGLE3_DEBUG_SITES="[",
        EAGLE3_DEBUG_DIR="/proc/nope",
    )
    assert done.stdout == "alive\n"
    assert "EAGLE3_DEBUG_EVERY='x'" in done.stderr
    assert "EAGLE3_DEBUG_RANKS='x'" in done.stderr
