"""Bytes to lines, lines to events: whatever is in the log."""

from __future__ import annotations

import os
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.watch.events import Kind, Stage, classify, read_arguments
from patchkit.watch.lines import LONGEST, Line, Splitter, parse, printable

STAMP = "2026-11-30 23:40:51"
AT = time.mktime(time.strptime(STAMP, "%Y-%m-%d %H:%M:%S"))


def lines_of(text: str) -> list[Line]:
    return list(parse(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"[{STAMP}] hello", Line("hello", AT, "")),
        (f"[{STAMP} TP3] hello", Line("hello", AT, "TP3")),
        (f"[{STAMP} DP1 PP0 TP10 EP2] hello", Line("hello", AT, "DP1 PP0 TP10 EP2")),
        (f"[{STAMP} ATTN_CP1 TP0] hello", Line("hello", AT, "ATTN_CP1 TP0")),
        (f"[{STAMP}.250 TP0] hello", Line("hello", AT + 0.25, "TP0")),
        ("no stamp at all", Line("no stamp at all")),
        ("[9999-99-99 99:99:99] nonsense", Line("nonsense", None, "")),
    ],
)
def test_a_line(text, expected):
    assert lines_of(text) == [expected]


def test_a_bar_in_front_of_another_ranks_line():
    text = "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03]"
    first, second = lines_of(f"{text}[{STAMP} TP1] Load weight end.")
    assert (first.text, first.stamp) == (text, None)
    assert (second.text, second.rank) == ("Load weight end.", "TP1")


def test_a_bar_is_read_before_its_line_ends():
    splitter = Splitter()
    bar = "\rLoading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03]"
    assert splitter.feed(bar.encode())[-1] == bar[1:]
    assert splitter.feed(b"\n") == [""]


def test_half_a_line_waits_for_its_other_half():
    splitter = Splitter()
    assert splitter.feed(b"[2026-11-30 23:40:51] Load wei") == []
    assert splitter.feed(b"ght begin.\n") == [
        "[2026-11-30 23:40:51] Load weight begin."
    ]


def test_a_line_without_end_is_cut_and_the_next_is_read():
    splitter = Splitter()
    found = splitter.feed(b"x" * (LONGEST + 5))
    found += splitter.feed(b"y" * LONGEST)
    found += splitter.feed(b"yyy\nnext\n")
    assert [len(one) for one in found] == [LONGEST, 0, 4]
    assert found[-1] == "next"


@pytest.mark.parametrize("hole", [b"\0" * 5000, b"\xff\xfe\x80", b"\x1b[1;33m"])
def test_what_a_line_may_begin_with(hole):
    found = Splitter().feed(hole + f"[{STAMP}] Load weight begin.\n".encode())
    assert classify(list(parse(found[0]))[-1]).kind is Kind.BEGIN


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_give_lines_and_nothing_else(parts):
    splitter = Splitter()
    for part in [*parts, b"\n"]:
        for raw in splitter.feed(part):
            for line in parse(raw):
                classify(line)
    assert splitter.end() == []


def test_where_the_stream_is_cut_does_not_matter():
    data = os.urandom(4000) + b"\none\r\ntwo\n" + os.urandom(3000) + b"\n"
    whole = [one for one in Splitter().feed(data) if one]
    splitter = Splitter()
    pieces = []
    for at in range(0, len(data), 7):
        pieces += splitter.feed(data[at : at + 7])
    assert [one for one in pieces if one] == whole


@pytest.mark.parametrize(
    ("text", "kind", "stage"),
    [
        ("server_args=ServerArgs(model_path='x')", Kind.ARGUMENTS, None),
        ("Init torch distributed begin.", Kind.BEGIN, Stage.DISTRIBUTED),
        ("Init torch distributed ends. elapsed=0.1 s", Kind.END, Stage.DISTRIBUTED),
        ("Init parallel begin.", Kind.BEGIN, Stage.DISTRIBUTED),
        ("Load weight begin. avail mem=7 GB", Kind.BEGIN, Stage.WEIGHTS),
        ("Load weight end. elapsed=1 s, type=X", Kind.END, Stage.WEIGHTS),
        ("Memory pool end. avail mem=7 GB", Kind.END, Stage.MEMORY),
        ("KV Cache is allocated. #tokens: 9", Kind.ALLOCATED, Stage.MEMORY),
        ("Capture cuda graph begin. This can", Kind.BEGIN, Stage.GRAPHS),
        ("Capture draft extend cuda graph end. Time", Kind.END, Stage.GRAPHS),
        ("Capture target verify CUDA graph begin. backend=x", Kind.BEGIN, Stage.GRAPHS),
        ("Capture Frozen-KV MTP draft cuda graph begin.", Kind.BEGIN, Stage.GRAPHS),
        ("max_total_num_tokens=4096, chunked", Kind.SCHEDULING, None),
        ("INFO:     Uvicorn running on http://x:1 (Press", Kind.HTTP_UP, None),
        ("The server is fired up and ready to roll!", Kind.READY, None),
        ("Prefill batch, #new-seq: 1", Kind.BATCH, None),
        ("Decode batch. #running-req: 1", Kind.BATCH, None),
        ('INFO:     127.0.0.1:4 - "GET /health HTTP/1.1" 503 X', Kind.ACCESS, None),
        ("Scheduler hit an exception: Traceback (most", Kind.FAILURE, None),
        ("Initialization failed. warmup error: x", Kind.FAILURE, None),
        ("Received sigquit from a child process. It", Kind.AFTERMATH, None),
        ("SIGQUIT received. signum=3, frame=None.", Kind.AFTERMATH, None),
        ("Rank 1 scheduler is dead. Please", Kind.AFTERMATH, None),
        ("Ignore import error when loading x: No", Kind.HARMLESS, None),
        ("Can not initialize OpenAIServingResponses, error: x", Kind.HARMLESS, None),
        ("SIGTERM received. signum=None", Kind.STOPPING, None),
        ("we begin here", Kind.OTHER, None),
        ("", Kind.OTHER, None),
    ],
)
def test_an_event(text, kind, stage):
    found = classify(Line(text))
    assert found.kind is kind
    if stage is not None:
        assert found.stage is stage


@pytest.mark.parametrize(
    ("text", "stage", "name", "done", "total"),
    [
        (
            "Loading safetensors checkpoint shards:  36% Completed | 58/163 [01:02<]",
            Stage.WEIGHTS, "Loading safetensors checkpoint shards", 58, 163,
        ),
        (
            "Multi-thread loading shards: 100% Completed | 1/1 [00:00<00:00, 10.4it/s]",
            Stage.WEIGHTS, "Multi-thread loading shards", 1, 1,
        ),
        (
            "Capturing batches (bs=8 avail_mem=4.1 GB):  50%|###  | 4/8 [00:02<00:02]",
            Stage.GRAPHS, "Capturing batches (bs=8 avail_mem=4.1 GB)", 4, 8,
        ),
        (
            "Some new bar of a new release:  10%|#  | 1/10 [00:02<?, ?it/s]",
            Stage.OTHER, "Some new bar of a new release", 1, 10,
        ),
    ],
)  # fmt: skip
def test_a_bar(text, stage, name, done, total):
    found = classify(Line(text))
    assert (found.kind, found.stage) == (Kind.PROGRESS, stage)
    assert (found.name, found.done, found.total) == (name, done, total)


@pytest.mark.parametrize(
    "text",
    [
        "server_args=ServerArgs(model_path='/m/t', port=30000, tp_size=8, nnodes=2,"
        " dp_size=2, pp_size=1, enable_dp_attention=False,"
        " speculative_algorithm='EAGLE3', speculative_draft_model_path='/m/d',"
        " disable_cuda_graph=False)",
        "server_args={'model_path': '/m/t', 'port': 30000, 'tp_size': 8, 'nnodes': 2,"
        " 'dp_size': 2, 'pp_size': 1, 'enable_dp_attention': False,"
        " 'speculative_algorithm': 'EAGLE3', 'speculative_draft_model_path': '/m/d',"
        " 'disable_cuda_graph': False}",
    ],
)
def test_arguments(text):
    found = read_arguments(text)
    assert (found.model, found.draft, found.algorithm) == ("/m/t", "/m/d", "EAGLE3")
    assert (found.port, found.nodes, found.ranks) == (30000, 2, 8)
    assert found.graphs


def test_arguments_that_say_nothing():
    found = read_arguments("server_args=ServerArgs(model_path='m', port=None)")
    assert (found.draft, found.algorithm, found.port, found.ranks) == ("", "", 0, 1)


@pytest.mark.parametrize(
    "sent",
    ["\x1b[31m", "\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\",
     "\x1bc", "\x07", "\x9b31m", "\x08"],
)  # fmt: skip
def test_what_a_terminal_would_obey_is_left_out(sent):
    shown = printable(f"a{sent}b\tc\n")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert shown[0] == "a" and shown.endswith("b\tc\n")
    assert Splitter().feed(f"x{sent}y\n".encode())[0].endswith("y")
