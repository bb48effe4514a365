"""Logs in memory: lines as the taps write them, and what is found in them."""

from __future__ import annotations

import math
from typing import Any

from support import ROOT

from patchkit.logs.finding import Finding
from patchkit.logs.reading import Options, Reading, Report
from patchkit.logs.record import Note, Record
from patchkit.logs.stream import Counts, Stream

SAMPLES = ROOT / "fixtures" / "logs"

HIDDEN = 64


def line(site: str, *, rank: int = 0, step: int = 1, **words: Any) -> str:
    """One log line: what is not given is as in a forward of five real rows of eight."""
    norm = words.pop("norm", 10.0)
    layer = words.pop("layer", None)
    usual: dict[str, Any] = {
        "shape": words.pop("shape", f"8x{HIDDEN}"),
        "dtype": "bfloat16",
        "norm": f"{norm:.6g}",
        "mean": words.pop("mean", "0.01"),
        "absmax": words.pop("absmax", "3.5"),
        "nonfinite": words.pop("nonfinite", 0),
        "rows": words.pop("rows", "5/8"),
    }
    head = {"rank": rank, "step": step} | ({} if layer is None else {"layer": layer})
    said = " ".join(f"{key}={value}" for key, value in (head | usual | words).items())
    return f"[2026-01-01 00:00:{step % 60:02d} TP{rank}] EAGLE3_DEBUG[{site}] {said}\n"


def forward(
    *,
    step: int,
    rank: int = 0,
    norms: tuple[float, ...] = (3.0, 5.0, 7.0),
    layers: tuple[Any, ...] = (2, 30, 58),
    joined: tuple[float, ...] | None = None,
    **words: Any,
) -> str:
    """A target's forward: its states, and what became of them."""
    after = norms if joined is None else joined
    said = [
        line("deepseek_v2.aux", rank=rank, step=step, layer=layer, norm=norm, **words)
        for layer, norm in zip(layers, norms, strict=True)
    ]
    wide = len(after) * HIDDEN
    said.append(
        line(
            "logits_processor.concat", rank=rank, step=step, norm=math.hypot(*after),
            shape=f"8x{wide}", parts=len(after),
            widths="+".join([str(HIDDEN)] * len(after)),
            segments="+".join(f"{one:.6g}" for one in after), model="deepseek_v2",
            **words,
        )
    )  # fmt: skip
    return "".join(said)


def draft(
    *,
    step: int,
    rank: int = 0,
    norms: tuple[float, ...] = (3.0, 5.0, 7.0),
    fc: str = "applied",
    **words: Any,
) -> str:
    """The draft's forward on these states; of one state it is a decode step."""
    wide = len(norms) * HIDDEN
    common = {"rank": rank, "step": step, "in_features": 3 * HIDDEN, **words}
    segments = {} if len(norms) == 1 else {
        "segments": "+".join(f"{one:.6g}" for one in norms)
    }  # fmt: skip
    got = line(
        "llama_eagle3.fc_in", shape=f"8x{wide}", norm=math.hypot(*norms), **segments,
        **common,
    )  # fmt: skip
    return got + line("llama_eagle3.fc_out", fc=fc, norm=4.0, **common)


def round_(step: int, **words: Any) -> str:
    """A target's forward, the draft's that takes its states, two decode steps."""
    first = 3 * step - 2
    words.setdefault("norms", (3.0, 5.0, 7.0))
    target = forward(step=step, **words)
    words.pop("layers", None)
    said = target + draft(step=first, **words)
    words["norms"] = (4.0,)
    for number in (first + 1, first + 2):
        said += draft(step=number, fc="skipped", **words)
    return said


def parsed(data: bytes, *, json_lines: bool = False, block: int = 0) -> tuple[
    list[Record | Note], Counts
]:  # fmt: skip
    """Records of ``data``, fed in blocks of ``block`` bytes (0: at once)."""
    stream = Stream("log", json_lines=json_lines)
    found = []
    step = block or max(len(data), 1)
    for begin in range(0, len(data), step):
        found += stream.feed(data[begin : begin + step])
    return found + stream.close(), stream.counts


def read(text: str | bytes, head: bytes | None = None, **options: Any) -> Report:
    """The report on a log."""
    data = text.encode() if isinstance(text, str) else text
    found, counts = parsed(data)
    reading = Reading(Options(**options))
    reading.see(found)
    return reading.finish({"log": [counts]}, [data if head is None else head], [])


def found(text: str | bytes, **options: Any) -> dict[str, Finding]:
    """Findings by name; every name once."""
    findings = read(text, **options).findings
    names = {one.name: one for one in findings}
    assert len(names) == len(findings), [one.title for one in findings]
    return names
