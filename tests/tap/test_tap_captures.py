"""Taps in captures, which on a CPU can only be pretended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from devicekit import batch, json_lines  # noqa: E402


@pytest.fixture
def capture(monkeypatch):
    state = SimpleNamespace(on=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state.on)
    return state


def test_captured_taps_say_so(through, said, tmp_path, capture):
    made = through(DIR=str(tmp_path))
    for on in (False, True, True):
        capture.on = on
        made.tap.begin("m", batch([1, 2]))
        made.tap.tap("x", torch.ones(2, 4))
    made.flush()
    events = [row for row in json_lines(tmp_path) if "event" in row]
    assert [row["event"] for row in events] == ["captured", "captured"]
    assert (events[0]["mode"], events[0]["batch"]) == ("DECODE", 2)
    assert (
        said.texts.count("EAGLE3_DEBUG[x] inside a CUDA graph: speaks at replay") == 1
    )
    # Captured or not, the emulation has run it: a real capture leaves no record.
    assert [line["captured"] for line in said.lines] == ["0", "1", "1"]


def test_nothing_new_is_set_up_in_a_capture(through, said, capture):
    made = through()
    capture.on = True
    made.tap.tap("first", torch.ones(2, 4))
    capture.on = False
    made.tap.tap("x", torch.ones(2, 4))
    capture.on = True
    made.tap.tap("x", torch.ones(2, 4, dtype=torch.float16))
    made.flush()
    silent = [text for text in said.texts if "silent at replay" in text]
    assert [text.split("]")[0] for text in silent] == [
        "EAGLE3_DEBUG[first", "EAGLE3_DEBUG[x",
    ]  # fmt: skip
    assert len(said.lines) == 1


def test_each_captured_node_has_memory_of_its_own(through, said, capture):
    made = through()
    made.tap.tap("x", torch.ones(2, 4))
    capture.on = True
    for _ in range(3):
        made.tap.tap("x", torch.ones(2, 4))
    (device,) = made.process.devices.values()
    calls = [call for call in device._calls._calls.values() if call.captured]
    assert len(calls) == 3
