"""The host's side: clock, calls, plans; without a device."""

from __future__ import annotations

import importlib
import random

import pytest

torch = pytest.importorskip("torch")

reader = importlib.import_module("patchkit.tap.reader")
calls = importlib.import_module("patchkit.tap.calls")

TICK = 1024e-9
LAP = (1 << 32) * TICK


def test_clock_finds_the_offset_and_never_goes_wrong_by_more_than_a_delay():
    order = random.Random(1)
    clock = reader.Clock()
    offset = 1.7e9 - 55.0
    moment = 60.0
    for number in range(500):
        moment += order.expovariate(20)
        delay = order.uniform(0.0005, 0.02)
        ticks = int(moment / TICK) % (1 << 32)
        gpu, wall = clock.read(ticks, moment + offset + delay)
        assert gpu == pytest.approx(moment, abs=2e-6)
        assert wall - (moment + offset) < 0.02
        if number > 50:
            assert abs(wall - (moment + offset)) < 0.003


@pytest.mark.parametrize("pause", [0.5, 1.5, 10.3])
def test_clock_over_laps(pause):
    """The counter starts anew every 73 minutes, with records or without."""
    clock = reader.Clock()
    moment, offset = LAP * 0.9, 1.7e9
    first, _ = clock.read(int(moment / TICK) % (1 << 32), moment + offset)
    later = moment + pause * LAP
    gpu, wall = clock.read(int(later / TICK) % (1 << 32), later + offset)
    assert gpu - first == pytest.approx(pause * LAP, abs=1e-5)
    assert wall == pytest.approx(later + offset, abs=1e-3)


def test_clock_follows_drift():
    """A GPU's clock that runs 100 ppm slow: 0.36 s an hour."""
    clock = reader.Clock()
    for second in range(0, 20_000, 5):
        ticks = int(second * (1 - 1e-4) / TICK) % (1 << 32)
        _, wall = clock.read(ticks, 1.7e9 + second)
    assert abs(wall - (1.7e9 + second)) < 0.05


def call(**changes):
    fields = dict(
        site="x",
        model="m",
        rank=0,
        shape=(None, 4),
        width=4,
        dtype=torch.float32,
        segments=1,
        joined=False,
        layers=(),
        fields=(),
        mode="DECODE",
        batch=1,
        captured=False,
        warmup=False,
        counted=True,
        supported=True,
        save=0,
    )
    return calls.Call(**{**fields, **changes})


def test_equal_eager_calls_share_a_number_and_captured_ones_do_not():
    known = calls.Calls()
    assert known.number(call()) == known.number(call())
    assert known.number(call(batch=2)) != known.number(call())
    captured = {known.number(call(captured=True)) for _ in range(3)}
    assert len(captured) == 3
    assert all(known.get(number) == call(captured=True) for number in captured)


def test_eager_calls_are_forgotten_oldest_first_and_captured_ones_never(monkeypatch):
    monkeypatch.setattr(calls, "MOST_EAGER", 4)
    known = calls.Calls()
    captured = known.number(call(captured=True))
    numbers = [known.number(call(batch=n)) for n in range(6)]
    assert [known.get(n) is None for n in numbers] == [True, True, *[False] * 4]
    assert known.get(captured) is not None


def test_plans():
    """Every plan takes all rows, in few shapes."""
    pytest.importorskip("triton", reason="no triton; see docs/testing.md")
    launch = importlib.import_module("patchkit.tap.launch")
    shapes = set()
    for width in (1, 64, 100, 2048, 7168, 21504, 129280):
        for itemsize in (2, 4):
            for segments in (1, 3, 8):
                for rows in (*range(1, 40), 255, 256, 257, 1000, 1025, 4096, 9000):
                    how = launch.plan(rows, width, itemsize, segments)
                    assert how.programs <= how.bucket
                    assert how.bucket >= 32 * how.warps
                    if how.tile_rows == 1:
                        assert how.programs == rows
                    if (width, itemsize, segments) == (7168, 2, 1):
                        shapes.add((how.bucket, how.tile_rows, how.columns, how.warps))
    assert len(shapes) <= 5
    assert launch.plan(1, 1 << 20, 2, 1) is None


# ---- voice: templates must say what emit would have said


def record(order, **changes):
    ring = importlib.import_module("patchkit.tap.ring")
    number = order.uniform
    fields = dict(
        call=1,
        segment=0,
        step=order.randint(1, 10**6),
        rows=5,
        total=8,
        norm=number(0, 1e6),
        absmax=number(0, 1e-9),
        share=number(-1, 1),
        nonfinite=order.choice([0, 3]),
        least=number(0, 1),
        greatest=number(1, 1e38),
        ticks=0,
        sequence=1,
    )
    return ring.Record(**{**fields, **changes})


@pytest.mark.parametrize("seed", range(20))
def test_a_voice_says_what_emit_says(seed):
    import json
    from types import SimpleNamespace

    emit = importlib.import_module("patchkit.tap.emit")
    statistics = importlib.import_module("patchkit.tap.statistics")
    voice = importlib.import_module("patchkit.tap.voice")
    order = random.Random(seed)
    joined = seed % 3 == 0
    rows = order.choice([5, 8])
    extra = {"fc": "applied", "odd": "100% {x} \x02", "many": (1, 2), "no": None}
    one = call(
        segments=3,
        joined=joined,
        layers=() if joined else (2, 30, 58),
        fields=tuple(extra.items()),
        batch=order.choice([None, 8]),
        captured=True,
    )
    records = [record(order, segment=j, rows=rows) for j in range(3 if joined else 1)]
    if seed == 1:
        records[0] = record(order, norm=float("inf"), share=float("nan"), rows=rows)
    said, text = voice.Voice(one, 0, 8, timed=True).speak(
        records, 12.5, 1.7e9, json=True
    )
    elements = rows * 4 * len(records)
    nonfinite = sum(part.nonfinite for part in records)
    share = sum(part.share for part in records) / len(records)
    norms = [part.norm for part in records]
    values = statistics.RowStatistics(
        norm=torch.linalg.vector_norm(torch.tensor(norms, dtype=torch.float64)).item(),
        mean=share * elements / (elements - nonfinite),
        absmax=max(part.absmax for part in records),
        nonfinite=nonfinite,
        rows=rows,
        row_norm_min=min(part.least for part in records),
        row_norm_max=max(part.greatest for part in records),
    )
    fields = {} if joined else {"layer": 2}
    fields |= extra
    if joined:
        fields["segment_norms"] = norms
    fields["mode"] = "DECODE"
    if one.batch is not None:
        fields["batch"] = 8
    fields["captured"] = 1
    subject = SimpleNamespace(shape=(8, 4), dtype=torch.float32)
    step = records[0].step
    assert said == emit.line(0, step, subject, values, fields)
    expected = json.loads(
        emit.record(
            *("x", "m", 0, step, subject, values),
            {**fields, "gpu_time": 12.5},
            when=1.7e9,
        )
    )
    found = json.loads(text, parse_constant=pytest.fail)
    for key in ("norm", "mean"):
        got, want = found.pop(key), expected.pop(key)
        assert got == (want if want is None else pytest.approx(want, rel=1e-12))
    assert found == expected
