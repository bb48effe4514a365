"""Records arrive whole, once and in order: from graphs, and from compiled code."""

from __future__ import annotations

import functools
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from kit import batch, capture, check, load_tap, log, microseconds, nodes, part

DEVICE = torch.device("cuda")


@functools.cache
def _inputs(name: str, counter: torch.Tensor, size: int) -> tuple[torch.Tensor, Any]:
    """Made at the warm-up."""
    loc = torch.ones(size, dtype=torch.int64, device=DEVICE)
    return torch.zeros(size, 3 * 512, device=DEVICE), batch(loc)


def _forward(tap: Any, name: str, counter: torch.Tensor, size: int) -> None:
    """The n-th forward of a model writes n, and 2 n, everywhere."""
    x, given = _inputs(name, counter, size)
    tap.begin(name, given)
    counter.add_(1)
    x.copy_(counter.expand_as(x))
    tap.tap(f"{name}.a", x)
    tap.tap(f"{name}.b", x * 2)


def replays(total: int) -> dict[str, object]:
    """Target and draft graphs of several sizes, in any order, on two streams, inputs
    changing on the device, no synchronisation allowed, the reader thread alive."""
    found: dict[str, object] = {}
    for label, ring, pace in (
        ("paced", "32768", True),
        ("burst", "32768", False),
        ("lapped", "256", False),
    ):
        folder = tempfile.mkdtemp()
        tap, texts = load_tap(f"ring_{label}", ON="1", DIR=folder, RING=ring)
        process = part(tap, "speaker").STATE.process
        graphs = []
        streams = {name: torch.cuda.Stream() for name in ("target", "draft")}
        counters = {
            name: torch.zeros(1, device=DEVICE, dtype=torch.float32) for name in streams
        }
        sizes = (1, 4, 16, 64)
        for name in streams:
            for size in sizes:
                run = functools.partial(_forward, tap, name, counters[name], size)
                graphs.append((name, size, capture(run)))
        torch.cuda.synchronize()
        for counter in counters.values():
            counter.zero_()
        process.reader.flush()
        written = sum(file.stat().st_size for file in Path(folder).glob("*.jsonl"))
        order = random.Random(1)
        torch.cuda.synchronize()
        began = time.time()
        torch.cuda.set_sync_debug_mode("error")
        for number in range(total):
            name, _, graph = order.choice(graphs)
            with torch.cuda.stream(streams[name]):
                graph.replay()
            if pace and number % 50 == 49:
                # 100 records; at most 10,000 a second.
                time.sleep(max(0.0, began + number * 2e-4 - time.time()))
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        took = time.time() - began
        process.flush()
        whole = time.time() - began
        lines = []
        for file in Path(folder).glob("*.jsonl"):
            data = file.read_bytes()[written:]
            lines += [json.loads(line) for line in data.splitlines()]
        spoke = [one for one in lines if "event" not in one]
        lost = sum(one["count"] for one in lines if one.get("event") == "lost")
        keys = {(one["site"], one["step"]) for one in spoke}
        first = {
            name: min((o["step"] for o in spoke if o["model"] == name), default=0)
            for name in streams
        }
        # The n-th forward of a model wrote n (or 2 n) everywhere.
        wrong = []
        if lost == 0:
            for one in spoke:
                value = one["step"] - first[one["model"]] + 1
                value *= 2 if one["site"].endswith("b") else 1
                good = one["absmax"] == value and one["captured"] == 1
                good &= abs(one["mean"] / value - 1) < 1e-5
                if not good:
                    wrong.append(one)
        torn = sum(lane.ring.torn for lane in process.reader._lanes)
        facts = {
            "replays": total,
            "records": 2 * total,
            "delivered": len(spoke),
            "lost": lost,
            "torn, read again": torn,
            "seconds": round(took, 2),
            "read a second": round(len(spoke) / whole),
        }
        check(f"{label}: delivered + lost = written", len(spoke) + lost == 2 * total)
        check(f"{label}: none twice", len(keys) == len(spoke), facts)
        check(f"{label}: every value is that of its step", not wrong, wrong[:2])
        if label != "lapped":
            check(f"{label}: none lost", lost == 0)
        else:
            check("lapped: the loss is said", any("lost" in t for t in texts.texts))
        found[label] = facts
    return found


def compiled() -> dict[str, object]:
    """torch.compile: one record per tap and call, no node removed or doubled."""
    folder = tempfile.mkdtemp()
    tap, _ = load_tap("inside", ON="1", DIR=folder)
    process = part(tap, "speaker").STATE.process
    width = 2048
    weight = torch.randn(width, width, device=DEVICE, dtype=torch.bfloat16) * 0.01
    loc = torch.ones(16, dtype=torch.int64, device=DEVICE)
    given = batch(loc)

    def run(x: torch.Tensor, taps: bool) -> torch.Tensor:
        if taps:
            tap.begin("m", given)
        for layer in range(3):
            x = torch.nn.functional.rms_norm(x, (width,)) @ weight + x
            if taps:
                tap.tap_stream("stream", x, None, layer)
        out = torch.cat([x, x * 2], -1)
        if taps:
            tap.tap("end", out)
        return out

    x = torch.randn(16, width, device=DEVICE, dtype=torch.bfloat16)

    def records() -> list[dict[str, Any]]:
        torch.cuda.synchronize()
        process.reader.flush()
        rows = []
        for file in Path(folder).glob("*.jsonl"):
            rows += [json.loads(line) for line in file.read_text().splitlines()]
            file.write_text("")
        return [row for row in rows if "event" not in row]

    def under(mode: str) -> dict[str, int]:
        torch._dynamo.reset()
        name = None if mode == "default" else mode
        plain = torch.compile(run, fullgraph=True, dynamic=False, mode=name)
        made = torch.compile(run, fullgraph=True, dynamic=False, mode=name)
        for _ in range(3):
            base, got = plain(x, False).clone(), made(x, True).clone()
        records()
        counts = []
        for _ in range(4):
            made(x, True)
            counts.append(len(records()))
        check(f"compile {mode}: records per call", counts == [4] * 4, counts)
        check(f"compile {mode}: same output", torch.equal(base, got))
        if mode == "reduce-overhead":
            return {}
        with_taps = nodes(lambda: made(x, True))
        without = nodes(lambda: plain(x, False))
        check(
            f"compile {mode}: nodes",
            with_taps - without == 4,
            f"{without} without, {with_taps} with 4 taps",
        )
        graph = capture(lambda: made(x, True))
        records()
        for _ in range(5):
            graph.replay()
        rows = records()
        good = [row["site"] for row in rows] == [row["site"] for row in want] * 5
        check(f"compile {mode}: records per replay", good, len(rows))
        near = [abs(a["norm"] / b["norm"] - 1) for a, b in zip(rows, want * 5)]
        check(f"compile {mode}: norms", max(near) < 2e-2, max(near))
        log("replay", f"{microseconds(graph, 20):.1f} us")
        return {"nodes": without, "with 4 taps": with_taps}

    with torch.no_grad():
        run(x, True)
        want = records()
        modes = ("default", "max-autotune-no-cudagraphs", "reduce-overhead")
        return {mode: under(mode) for mode in modes}
