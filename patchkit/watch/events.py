"""A line to an event. Pure.

Lines are recognised by shape (``<name> begin``, ``<name> ends``, a tqdm bar) and by a
word in the name, so that a new release's "Capture draft decode CUDA graph begin." needs
nothing new here. Facts: the log lines of 0.4.6 to 0.5.23.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from patchkit.watch.lines import Line


class Kind(Enum):
    ARGUMENTS = "arguments"  # server_args=...: a server starts
    BEGIN = "begin"
    END = "end"
    PROGRESS = "progress"  # i of n
    ALLOCATED = "allocated"  # the KV cache
    SCHEDULING = "scheduling"  # every model is loaded, every graph captured
    HTTP_UP = "http up"  # which is not ready
    READY = "ready"
    BATCH = "batch"  # the engine works
    ACCESS = "access"  # somebody asked; no progress of the server's
    FAILURE = "failure"  # a rank, or the server, gives up
    AFTERMATH = "aftermath"  # of a failure that was said elsewhere
    STOPPING = "stopping"  # somebody asked it to end
    HARMLESS = "harmless"
    OTHER = "other"


class Stage(Enum):
    """What a BEGIN, END or PROGRESS is about."""

    START = "start"
    DISTRIBUTED = "distributed"
    WEIGHTS = "weights"
    MEMORY = "memory"
    GRAPHS = "graphs"
    WARMUP = "warm-up"
    OTHER = "other"


@dataclass(frozen=True)
class Event:
    kind: Kind
    line: Line
    stage: Stage = Stage.OTHER
    name: str = ""
    done: int = 0
    total: int = 0


_SPAN = re.compile(r"(?P<name>[A-Z][\w /()+.-]*?) (?P<edge>begin|end)s?\b")
_BAR = re.compile(
    r"(?P<name>.*?):? *(?P<percent>\d+)%.*?(?P<done>\d+)/(?P<total>\d+) \[[^\]]*\]"
)
_BATCH = re.compile(r"(Prefill|Decode|Extend|Mixed) batch\b")
_ACCESS = re.compile(r'INFO: .*"(GET|POST|PUT|HEAD) \S+ HTTP/[\d.]+" \d+')
_STAGES = (
    (Stage.WEIGHTS, re.compile(r"weight|shard|safetensors|checkpoint", re.I)),
    (Stage.GRAPHS, re.compile(r"graph|captur|compiling num tokens", re.I)),
    (Stage.DISTRIBUTED, re.compile(r"distributed|parallel|nccl|rendezvous", re.I)),
    (Stage.MEMORY, re.compile(r"memory pool|kv cache", re.I)),
    (Stage.WARMUP, re.compile(r"warm-?up", re.I)),
)
#: What a process logs in front of a traceback when it gives up: "Scheduler hit an
#: exception: Traceback ...", "Initialization failed. warmup error: ...".
_FAILURE = re.compile(
    r"hit an exception\b|Initialization failed|warmup error|watchdog timeout"
    r"|apture [\w -]*graph failed|error while attempting to bind"
    r"|Fatal Python error|terminate called after throwing",
    re.I,
)
_AFTERMATH = re.compile(
    r"received sigquit|SIGQUIT received|scheduler is dead|^Exit code: -?\d"
    r"|crashed with exit code|Triggering SIGQUIT|Waiting [\d.]+ seconds for CUDA core",
    re.I,
)
_STOPPING = re.compile(r"SIGTERM received|Gracefully exiting|Finished server process")
_HARMLESS = re.compile(r"Ignore import error|Can ?not initialize OpenAIServing")


def classify(line: Line) -> Event:
    """Never fails: what is not known is OTHER."""
    text = line.text
    # most of a long log, first
    if _BATCH.match(text):
        return Event(Kind.BATCH, line)
    if text.startswith("INFO:") and _ACCESS.match(text):
        return Event(Kind.ACCESS, line)
    if text.startswith("server_args="):
        return Event(Kind.ARGUMENTS, line)
    if _HARMLESS.search(text):
        return Event(Kind.HARMLESS, line)
    if _FAILURE.search(text):
        return Event(Kind.FAILURE, line)
    if _AFTERMATH.search(text):
        return Event(Kind.AFTERMATH, line)
    bar = _BAR.match(text) if "%" in text else None
    if bar is not None:
        done, total = int(bar["done"]), int(bar["total"])
        name = bar["name"].strip()
        return Event(Kind.PROGRESS, line, stage_of(name), name, done, total)
    span = _SPAN.match(text)
    if span is not None:
        kind = Kind.BEGIN if span["edge"] == "begin" else Kind.END
        name = span["name"]
        return Event(kind, line, stage_of(name), name)
    if text.startswith("max_total_num_tokens="):
        return Event(Kind.SCHEDULING, line)
    if re.match(r"KV Cache is allocated|Using KV cache", text):
        return Event(Kind.ALLOCATED, line, Stage.MEMORY)
    if "Uvicorn running on" in text:
        return Event(Kind.HTTP_UP, line)
    if "fired up and ready" in text:
        return Event(Kind.READY, line)
    if _STOPPING.search(text):
        return Event(Kind.STOPPING, line)
    return Event(Kind.OTHER, line)


def stage_of(name: str) -> Stage:
    return next((stage for stage, shape in _STAGES if shape.search(name)), Stage.OTHER)


@dataclass(frozen=True)
class Arguments:
    """What ``server_args=`` says; "" and 1 where it says nothing."""

    model: str = ""
    draft: str = ""
    algorithm: str = ""
    port: int = 0
    nodes: int = 1
    ranks: int = 1
    graphs: bool = True


def read_arguments(text: str) -> Arguments:
    """From ``ServerArgs(model_path='x', ...)`` or, newer, ``{'model_path': 'x', ...}``.

    ``ranks``: how many of them run on this node.
    """

    def value(name: str) -> str:
        found = re.search(rf"[({{ ]'?{name}'?[=:] ?('[^']*'|\"[^\"]*\"|[^,)}}]*)", text)
        told = found[1].strip("'\"") if found else ""
        return "" if told == "None" else told

    def number(name: str) -> int:
        told = value(name)
        return int(told) if told.isdigit() else 1

    nodes = number("nnodes")
    attention_dp = value("enable_dp_attention") == "True"
    ranks = number("tp_size") * number("pp_size")
    if not attention_dp:
        ranks *= number("dp_size")
    return Arguments(
        value("model_path"),
        value("speculative_draft_model_path"),
        value("speculative_algorithm"),
        int(value("port") or 0) if value("port").isdigit() else 0,
        nodes,
        max(1, ranks // nodes),
        value("disable_cuda_graph") != "True",
    )
