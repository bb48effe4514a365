"""Bytes -> records: however they are split, whatever is in them."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logkit import SAMPLES, forward, line, parsed, round_

from patchkit.logs.record import Note, Record
from patchkit.logs.values import Bad
from patchkit.logs.words import LONGEST, MARK, Words

LOGS = sorted(SAMPLES.glob("*.log"))
JSON_LINES = sorted(SAMPLES.glob("*/*.jsonl"))


@pytest.mark.parametrize("file", LOGS + JSON_LINES, ids=lambda file: file.name)
def test_every_mark_of_a_recorded_sample_is_a_record(file):
    data = file.read_bytes()
    found, counts = parsed(data, json_lines=file.suffix == ".jsonl")
    spoken = data.count(MARK) if file.suffix == ".log" else data.count(b"\n")
    assert counts.bad == 0
    assert counts.records + counts.notes == len(found) == spoken
    for one in found:
        text = data.split(b"\n")[one.line - 1].decode()
        assert one.site in text
        if isinstance(one, Record):
            assert re.search(rf"\bstep\W+{one.step}\b", text)


@pytest.mark.parametrize("file", LOGS + JSON_LINES, ids=lambda file: file.name)
@given(block=st.integers(1, 5000))
@settings(max_examples=15)
def test_any_blocks_give_the_same(file, block):
    data = file.read_bytes()[-6000:]
    json_lines = file.suffix == ".jsonl"
    whole = parsed(data, json_lines=json_lines)
    assert parsed(data, json_lines=json_lines, block=block) == whole


#: What a log is made of, good and bad, so that small examples are interesting.
_PIECES = st.sampled_from(
    [
        line("deepseek_v2.aux", layer=2).encode(),
        line("deepseek_v2.aux", layer="?", norm=1e-30).encode(),
        b"EAGLE3_DEBUG[a] rank=0 step=1 nonfinite=0\n",
        b"EAGLE3_DEBUG[ring] lost 123 records: the reader was slow\n",
        b"EAGLE3_DEBUG[x.aux] rank=0 step=1 sha",
        b"EAGLE3_DEBUG[x.aux",
        b"EAGLE3_DEB",
        b"EAGLE3_DEBUG[",
        b"UG[x] rank=0",
        b"Loading: 0% | 0/1\rLoading: 100% | 1/1\r",
        b"\n", b"\r\n", b" ", b"=", b"\x00\xff\xfe", b"[2026-01-01 00:00:00 DP1 TP3] ",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=12), st.integers(1, 80))
@settings(max_examples=400)
def test_pieces_in_any_order_and_any_blocks(pieces, block):
    data = b"".join(pieces)
    whole, counts = parsed(data)
    assert parsed(data, block=block) == (whole, counts)
    assert counts.records + counts.notes + counts.bad == data.count(MARK)


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(1, 60))
@settings(max_examples=300)
def test_garbage_in_a_log_is_counted_and_nothing_else_is_lost(garbage, at, block):
    good = round_(1).encode()
    data = good[:at] + garbage + good[at:]
    whole, counts = parsed(data, block=block)
    assert counts.records + counts.notes + counts.bad == data.count(MARK)
    touched = good.count(MARK) - len(whole)
    assert touched <= 1 + garbage.count(MARK)


@given(st.binary(max_size=300), st.integers(0, 900), st.integers(1, 60))
@settings(max_examples=300)
def test_garbage_in_json_lines_is_counted(garbage, at, block):
    good = JSON_LINES[0].read_bytes()[:1000].rpartition(b"\n")[0] + b"\n"
    data = good[:at] + garbage + good[at:]
    whole, counts = parsed(data, json_lines=True, block=block)
    assert parsed(data, json_lines=True) == (whole, counts)
    spoken = [one for one in data.split(b"\n") if one.strip()]
    assert counts.records + counts.notes + counts.bad == len(spoken)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["shape", "a"]), inner, max_size=3),
    max_leaves=6,
), st.sampled_from(
    ["site", "rank", "step", "shape", "norm", "rows", "layer", "segment_norms",
     "widths",
     "parts", "fc", "mode", "event", "count", "time", "model", "nonfinite"]
))  # fmt: skip
@settings(max_examples=400)
def test_a_json_line_of_any_types_is_a_record_or_bad(value, key):
    usual = {"site": "deepseek_v2.aux", "rank": 0, "step": 1, "shape": [2, 4]}
    text = json.dumps(usual | {key: value}).encode() + b"\n"
    found, counts = parsed(text, json_lines=True)
    assert len(found) + counts.bad == 1
    for one in found:
        assert one.where and str(one)
        if isinstance(one, Record):
            assert one.row_norm is None or one.row_norm >= 0


# -- the quick way and the careful one ----------------------------------------


def both(text: bytes) -> tuple[object, object]:
    """What the regular expression makes of it, and what words make of it."""
    quick = Words("log").usual(MARK + text + b"\n", len(MARK), 1)
    try:
        careful: object = Words("log").log(text.rstrip(b" "), 1)
    except Bad as problem:
        careful = problem
    return quick and quick[0], careful


def both_json(text: bytes) -> tuple[object, object]:
    try:
        careful: object = Words("log").json(text, 1)
    except Bad as problem:
        careful = problem
    return Words("log").usual_json(text, 1), careful


_VALUES = st.one_of(
    st.floats(0, 1e300).map(lambda one: f"{one:.6g}"),
    st.sampled_from(
        ["?", "nan", "inf", "1e999", "-1", "", "1_0", "0x1", "+3", "7", "0"]
    ),
)


@given(st.lists(_VALUES, min_size=8, max_size=8))
@settings(max_examples=400)
def test_quick_and_careful_agree(values):
    norm, mean, absmax, nonfinite, rows, low, high, more = values
    text = (
        f"a.aux] rank=0 step=3 layer=2 shape=8x64 dtype=bfloat16 norm={norm}"
        f" mean={mean} absmax={absmax} nonfinite={nonfinite} rows={rows}"
        f" row_norm_min={low} row_norm_max={high} mode=X more={more}"
    ).encode()
    quick, careful = both(text)
    if quick is not None:
        assert quick == careful


@given(st.lists(_VALUES, min_size=9, max_size=9))
@settings(max_examples=400)
def test_quick_and_careful_agree_about_json(values):
    norm, mean, absmax, nonfinite, rows, low, high, time, more = values
    text = (
        '{"site": "a.aux", "model": "m", "rank": 0, "step": 3, "shape": [8, 64],'
        f' "dtype": "bfloat16", "norm": {norm}, "mean": {mean}, "absmax": {absmax},'
        f' "nonfinite": {nonfinite}, "rows": {rows}, "row_norm_min": {low},'
        f' "row_norm_max": {high}, "time": {time}, "layer": 2, "more": {more},'
        ' "segment_norms": [1.5, 2.5], "gpu_time": 12.5}'
    ).encode()
    quick, careful = both_json(text)
    if quick is not None and isinstance(careful, Record):
        assert quick == careful


@pytest.mark.parametrize("file", JSON_LINES, ids=lambda file: file.name)
def test_recorded_json_lines_are_read_the_quick_way(file):
    for text in file.read_bytes().splitlines():
        quick, careful = both_json(text)
        assert quick == (careful if isinstance(careful, Record) else None)


def test_the_usual_order_is_read_the_quick_way():
    for text in (*forward(step=3).splitlines(), *round_(4).splitlines()):
        quick, careful = both(text.partition("EAGLE3_DEBUG[")[2].encode())
        assert quick is not None
        assert quick == careful


@given(st.permutations(line("a.aux", layer=2, mode="DECODE").split("] ")[2].split()))
def test_order_of_words_does_not_matter(words):
    usual = line("a.aux", layer=2, mode="DECODE")
    other = f"EAGLE3_DEBUG[a.aux] {' '.join(words)}\n"
    (one,), (two,) = parsed(usual.encode())[0], parsed(other.encode())[0]
    two.time = one.time
    assert one == two


# -- single lines -------------------------------------------------------------


def test_a_line_with_everything():
    text = line(
        "llama_eagle3.fc_in", rank=3, step=7, shape="8x192", norm=9.0, in_features=192,
        segments="3+4e-07+1.5e+07", mode="DRAFT_EXTEND", batch=8, captured=1,
        colour="red",
    )  # fmt: skip
    text = text.replace("rows=5/8", "rows=5/8 row_norm_min=1.5 row_norm_max=2.5")
    ((one,), _) = parsed(text.replace("TP3", "DP1 TP3").encode())
    assert isinstance(one, Record)
    assert (one.site, one.rank, one.step, one.layer) == (
        "llama_eagle3.fc_in",
        3,
        7,
        None,
    )
    assert (one.shape, one.about.dtype, one.rows) == ((8, 192), "bfloat16", 5)
    assert (one.norm, one.row_min, one.row_max) == (9.0, 1.5, 2.5)
    assert one.segments == [3.0, 4e-07, 1.5e07]
    assert one.row_norm == pytest.approx(9 / 5**0.5)
    assert dict(one.fields) == {
        "in_features": 192, "mode": "DRAFT_EXTEND", "batch": 8, "captured": 1,
        "colour": "red",
    }  # fmt: skip
    assert one.about.group == 1
    assert one.time == 1767225607.0


def test_unknown_values_and_a_scalar():
    text = (
        b"EAGLE3_DEBUG[x] rank=0 step=1 layer=? shape=scalar dtype=bfloat16 norm=?"
        b" mean=? absmax=? nonfinite=? stats=unsupported\n"
    )
    ((one,), _) = parsed(text)
    assert isinstance(one, Record)
    assert (one.layer, one.shape, one.norm, one.nonfinite) == (None, (), None, None)
    assert one.rows == 1 and one.width is None and one.row_norm is None


@pytest.mark.parametrize(
    ("text", "event", "count"),
    [
        ("[ring] lost 123 records: the GPU was faster", "lost", 123),
        ("[a.aux] tap failed: ValueError: no", "failed", 0),
        ("[a.aux] inside a CUDA graph: speaks at replay", "captured", 0),
        ("[settings] EAGLE3_DEBUG_EVERY='x' is not a whole number", "said", 0),
    ],
)
def test_notes(text, event, count):
    ((one,), counts) = parsed(f"[2026-01-01 00:00:00] EAGLE3_DEBUG{text}\n".encode())
    assert isinstance(one, Note)
    assert (one.event, one.count, counts.notes, counts.bad) == (event, count, 1, 0)


@pytest.mark.parametrize(
    "text",
    [
        "[a.aux] rank=0 step=1 layer=2 shape=8x64 dtype=bf16 norm=11",  # cut
        "[a.aux] rank=0 step=1 layer=2 nonfinite=0 mo",
        "[a.aux] ra",
        "[a.a",
        "[a.aux]",
        "[a.aux] rank=0 nonfinite=0",
        "[a.aux] step=1 rank=x nonfinite=0",
        "[a.aux] rank=0 step=0 nonfinite=0",
        "[a.aux] rank=0 step=1 norm=-1 nonfinite=0",
        "[a.aux] rank=0 step=1 nonfinite=0 nonfinite=1",
        "[a.aux] rank=0 step=1 shape=8xx64 nonfinite=0",
        "[a.aux] rank=0 step=1 norm=1_0 nonfinite=0",
        "[a\x00aux] rank=0 step=1 nonfinite=0",
        "[a.aux] rank=0 step=1 norm=1[2026-01-01 00:00:00] Decode batch, #running: 1",
    ],
)
def test_bad_lines_are_counted_with_their_number(text):
    data = f"first\nEAGLE3_DEBUG{text}\n{line('b.aux', layer=1)}".encode()
    (good,), counts = parsed(data)
    assert good.site == "b.aux" and good.line == 3
    assert counts.bad == 1
    assert counts.first_bad[0][0].line == 2


@pytest.mark.parametrize(
    ("prefix", "time"),
    [
        ("[2026-01-01 00:00:07] ", 1767225607.0),
        ("[2026-01-01 00:00:07,123] ", 1767225607.0),
        ("[2026-01-01 00:00:07 TP0 EP0] INFO: ", 1767225607.0),
        ("[2026-99-99 99:99:99 TP0] ", None),
        ("[20] ", None),
        ("", None),
    ],
)
def test_times_of_prefixes(prefix, time):
    data = line("a.aux", layer=1).partition("EAGLE3")
    ((one,), _) = parsed(f"{prefix}EAGLE3{data[2]}".encode())
    assert isinstance(one, Record)
    assert one.time == time


def test_two_records_in_a_line_are_one_bad_and_one_good():
    one, two = line("a.aux", layer=1), line("b.aux", layer=2)
    (good,), counts = parsed((one[:90] + two).encode())
    assert (good.site, counts.bad) == ("b.aux", 1)


def test_a_line_without_an_end_may_be_cut():
    text = line("a.aux", layer=1, mode="DECODE", batch=16).encode()
    assert parsed(text[:-1])[1].bad == 1
    assert parsed(text)[1].bad == 0


def test_progress_bars_end_with_a_return():
    text = line("a.aux", layer=1)
    data = f"Loading:   0% | 0/1\rLoading: 100% | 1/1\r{text}Loading: 1\r\n".encode()
    (good,), counts = parsed(data)
    assert (good.site, good.line, counts.bad, counts.lines) == ("a.aux", 1, 0, 2)


def test_a_line_of_gigabytes_is_not_kept():
    from patchkit.logs.stream import Stream

    for json_lines in (False, True):
        stream = Stream("log", json_lines=json_lines)
        stream.feed(b'{"site": ' if json_lines else b"EAGLE3_DEBUG[a.aux] rank=0 ")
        for _ in range(20):
            assert stream.feed(b"x" * LONGEST) == []
            assert len(stream._rest) <= 2 * LONGEST
        assert stream.feed(b"\n") == []
        assert stream.close() == []
        assert stream.counts.bad == 1
