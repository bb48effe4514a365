"""EAGLE3_DEBUG_SAVE: which tensors, how many, how large, and with which facts."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")

from devicekit import batch, json_lines  # noqa: E402


def files(folder):
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safetensors.safe_open(file, "pt") as opened:
            assert list(opened.keys()) == ["tensor"]
            found[file.name] = (opened.get_tensor("tensor"), opened.metadata())
    return found


def numbered(found):
    """By the number in the name."""
    return {name.rsplit("-", 1)[1].split(".")[0]: one for name, one in found.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_first_tensors_of_a_site(through, said, tmp_path, dtype):
    made = through(DIR=str(tmp_path), SAVE="wan*:3")
    tensors = [torch.randn(4, 8 + step).to(dtype) for step in range(5)]
    for tensor in tensors:
        made.tap.begin("m", batch([7, 8, 9, 0], "EXTEND"))
        made.tap.tap("wanted", tensor, layer=3)
        made.tap.tap("other", tensor)
    made.process.flush()
    found = numbered(files(tmp_path))
    assert sorted(found) == ["1", "2", "3"]
    for name, (tensor, facts) in found.items():
        assert torch.equal(tensor, tensors[int(name) - 1])
        assert tensor.dtype == dtype
        assert facts["site"] == "wanted"
        assert (facts["step"], facts["model"]) == (name, "m")
        assert (facts["rows"], facts["rank"], facts["layer"]) == ("3", "0", "3")
        assert (facts["mode"], facts["batch"], facts["captured"]) == (
            "EXTEND",
            "4",
            "0",
        )
    events = [row for row in json_lines(tmp_path) if row.get("event") == "saved"]
    assert [event["file"].rsplit("-", 1)[1] for event in events] == [
        *("1.safetensors", "2.safetensors", "3.safetensors"),
    ]
    assert events[0]["shape"] == [4, 8]


def test_views(through, said, tmp_path):
    made = through(DIR=str(tmp_path), SAVE="*:9")
    whole = torch.randn(6, 40)
    views = [whole[:, 8:20], whole[::2], whole.t(), whole[0], whole.view(2, 3, 40)]
    for index, view in enumerate(views):
        made.tap.tap(f"x{index}", view)
    made.process.flush()
    found = files(tmp_path)
    assert len(found) == len(views)
    for name, (tensor, _) in found.items():
        view = views[int(name[1])]
        assert torch.equal(tensor.reshape(-1), view.reshape(-1))


def test_bounded_in_bytes_and_said(through, said, tmp_path):
    made = through(DIR=str(tmp_path), SAVE="x:100", SAVE_MB="1")
    for _ in range(4):
        made.tap.tap("x", torch.ones(100, 1000))
    made.process.flush()
    assert len(files(tmp_path)) == 2
    # With triton the device stops by itself, silently.
    reached = [text for text in said.texts if "EAGLE3_DEBUG_SAVE_MB is reached" in text]
    assert len(reached) == (1 if through.way == "portable" else 0)


def test_an_announced_warm_up_is_not_saved(through, said, tmp_path, monkeypatch):
    state = SimpleNamespace(is_capture_mode=True)
    name = "sglang.srt.model_executor.cuda_graph_runner"
    monkeypatch.setitem(sys.modules, name, state)
    made = through(DIR=str(tmp_path), SAVE="x:2")
    for value in (1.0, 2.0, 3.0):
        state.is_capture_mode = value < 3
        made.tap.begin("m", batch([1, 1]))
        made.tap.tap("x", torch.full((2, 4), value))
    made.process.flush()
    ((tensor, facts),) = files(tmp_path).values()
    assert (float(tensor[0, 0]), facts["step"]) == (3.0, "1")


def test_states_and_joined_tensors_are_saved_whole(through, said, tmp_path):
    made = through(DIR=str(tmp_path), SAVE="*:1")
    packed = torch.randn(2, 12)
    model = SimpleNamespace(
        layers_to_capture=[1, 2, 3], config=SimpleNamespace(hidden_size=4)
    )
    made.tap.begin("m", batch([1, 2]))
    made.tap.tap_states("aux", packed, model)
    made.tap.tap_parts("concat", packed)
    made.tap.tap_concat("concat", packed, packed[:, :4])
    made.process.flush()
    found = files(tmp_path)
    assert len(found) == 2
    for name, (tensor, facts) in found.items():
        assert torch.equal(tensor, packed)
        if name.startswith("aux"):
            assert facts["layer"] == "1+2+3"
        else:
            assert facts["parts"] == "3"


def test_a_lost_record_does_not_lose_the_tensor(through, said, tmp_path):
    if through.way == "portable":
        pytest.skip("only with triton are copies kept apart from records")
    made = through(DIR=str(tmp_path), SAVE="x:2", RING="64")
    with made.process.reader._lock:
        for step in range(90):
            made.tap.begin("m", batch([1]))
            made.tap.tap("x", torch.full((1, 1), float(step)))
    made.process.flush()
    found = files(tmp_path)
    assert sorted(facts["step"] for _, facts in found.values()) == ["1", "2"]
    assert "rows" not in next(iter(found.values()))[1]


# ---- looked at at once


def test_on_the_host(load, said, tmp_path):
    tap = load(DIR=str(tmp_path), SAVE="x:2")
    tensors = [torch.randn(2, 3) for _ in range(3)]
    for tensor in tensors:
        tap.begin("m", None)
        tap.tap("x", tensor)
        tensor.zero_()
    found = numbered(files(tmp_path))
    assert sorted(found) == ["1", "2"]
    assert found["2"][1]["step"] == "2"
    assert float(found["1"][0].abs().sum()) > 0


def test_without_safetensors(load, said, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    tap = load(DIR=str(tmp_path), SAVE="x:2")
    for _ in range(3):
        tap.tap("x", torch.ones(1))
    assert len(said.lines) == 3
    told = [text for text in said.texts if "needs safetensors" in text]
    assert len(told) == 1


def test_a_folder_that_cannot_be_written(load, said, tmp_path):
    (tmp_path / "taps").write_text("in the way")
    tap = load(DIR=str(tmp_path / "taps"), SAVE="x:2")
    for _ in range(3):
        tap.tap("x", torch.ones(1))
    assert len([text for text in said.texts if "no tensor saved under" in text]) == 1
    assert len(said.lines) == 3


def test_names_of_files_are_plain(load, said, tmp_path):
    tap = load(DIR=str(tmp_path), SAVE="*:1")
    tap.begin("a/b", None)
    tap.tap("../x y", torch.ones(1))
    ((name, (_, facts)),) = files(tmp_path).items()
    assert "/" not in name and " " not in name
    assert facts["site"] == "../x y"


def test_the_settings_module_names_what_is_read():
    settings = importlib.import_module("patchkit.tap.settings")
    names = [name for name, _ in settings.ENVIRONMENT]
    assert {"EAGLE3_DEBUG_SAVE", "EAGLE3_DEBUG_SAVE_MB", "EAGLE3_DEBUG_RING"} <= set(
        names
    )
