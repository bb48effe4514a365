"""Every statistic against float64, and what must not go wrong besides."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from kit import batch, capture, check, load_tap, log, microseconds, part

DEVICE = torch.device("cuda")
ROWS = (1, 2, 3, 16, 63, 64, 65, 255, 256, 257, 512, 1000, 4096, 8192)
WIDTHS = (64, 2048, 7168, 21504)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def reference(tensor: torch.Tensor, keep: torch.Tensor) -> dict[str, float]:
    values = tensor[keep].double()
    finite = torch.isfinite(values)
    values = torch.where(finite, values, 0.0)
    rows = torch.linalg.vector_norm(values, dim=1)
    return {
        "norm": float(torch.linalg.vector_norm(rows)),
        "absmax": float(values.abs().max()),
        "share": float(values.sum() / values.numel()),
        "size": float(values.abs().sum() / values.numel()),
        "nonfinite": int((~finite).sum()),
        "least": float(rows.min()),
        "greatest": float(rows.max()),
        "rows": values.shape[0],
    }


def statistics(widths: Sequence[int] = WIDTHS) -> dict[str, float]:
    """Rows x widths x dtypes x (plain, planted, strided, padded), fresh random data."""
    tap, texts = load_tap("exact", ON="1")
    process = part(tap, "speaker").STATE.process
    lanes: list[Any] = []
    process.reader.add = lanes.append
    generator = torch.Generator(DEVICE).manual_seed(int(time.time()))
    worst = dict.fromkeys(("norm", "absmax", "share", "least", "greatest"), 0.0)
    wrong: list[object] = []
    count = 0
    for width in widths:
        for rows in ROWS:
            for dtype in DTYPES:
                for kind in ("plain", "planted", "strided", "padded", "segments"):
                    segments = 3 if kind == "segments" and width <= 7168 else 1
                    whole = torch.randn(
                        rows, width * segments + 16, device=DEVICE, generator=generator
                    )
                    whole = (whole * 3 + 0.1).to(dtype)
                    offset = 8 if kind == "strided" else 0
                    x = whole[:, offset : offset + width * segments]
                    if kind == "plain":
                        x = x.contiguous()
                    loc = torch.arange(1, rows + 1, device=DEVICE)
                    if kind == "padded":
                        loc[rows - rows // 4 :] = 0
                        x[rows - rows // 4 :] = float("nan")
                    if kind == "planted":
                        x[0, 3], x[rows // 2, 5] = float("nan"), float("inf")
                        x[-1, -1] = -float("inf")
                    forward = part(tap, "forward").of_batch("m", batch(loc))
                    device = process.device_of(x, capturing=False)
                    device.send("x", x, forward, segments=segments)
                    torch.cuda.synchronize()
                    # A closing program each: in any order.
                    found = sorted(lanes[0].ring.read(100), key=lambda one: one.segment)
                    count += 1
                    if len(found) != segments:
                        wrong.append((kind, rows, width, dtype, len(found)))
                        continue
                    for j, got in enumerate(found):
                        want = reference(x[:, j * width : (j + 1) * width], loc != 0)
                        bad = [
                            key
                            for key in ("rows", "nonfinite")
                            if getattr(got, key) != want[key]
                        ]
                        for key in worst:
                            scale = want["size"] if key == "share" else want[key]
                            error = abs(getattr(got, key) - want[key]) / scale
                            worst[key] = max(worst[key], error)
                            if not error < 1e-5:
                                bad.append(key)
                        if bad:
                            wrong.append(
                                (kind, rows, width, str(dtype), bad, got, want)
                            )
    check(f"statistics of {count} tensors", not wrong, wrong[:3])
    check("nothing else was said", not texts.texts, texts.texts[:3])
    log("worst relative errors", {k: f"{v:.1e}" for k, v in worst.items()})
    return worst


def unprepared() -> None:
    """A capture that nothing prepared must not fail; its silent taps are named."""
    tap, texts = load_tap("cold", ON="1")
    x = torch.ones(4, 64, device=DEVICE)
    graph = capture(lambda: tap.tap("x", x), warm=0)
    graph.replay()
    torch.cuda.synchronize()
    silent = [text for text in texts.texts if "silent at replay" in text]
    check("a first tap inside a capture is silent and said", len(silent) == 1, silent)
    tap.tap("x", x)
    wide = torch.ones(4, 128, device=DEVICE, dtype=torch.float16)
    capture(lambda: (tap.tap("y", wide), tap.tap("x", x)), warm=0).replay()
    torch.cuda.synchronize()
    part(tap, "speaker").STATE.process.flush()
    said = [text for text in texts.texts if "captured=1" in text]
    check("others in that capture still speak", len(said) == 1, texts.texts)


def portable() -> dict[str, float]:
    """The path without triton, in a graph."""
    folder = tempfile.mkdtemp()
    tap, _ = load_tap("torchonly", ON="1", DIR=folder)
    part(tap, "process")._triton = lambda device: None
    x = torch.randn(16, 7168, device=DEVICE, dtype=torch.bfloat16)
    y = torch.randn(16, 7168, device=DEVICE, dtype=torch.float64)
    loc = torch.ones(16, dtype=torch.int64, device=DEVICE)
    loc[12:] = 0

    def run() -> None:
        tap.begin("m", batch(loc))
        tap.tap("x", x)
        tap.tap("y", y)

    graph = capture(run)
    for _ in range(3):
        x.mul_(1.5)
        graph.replay()
    torch.cuda.synchronize()
    part(tap, "speaker").STATE.process.flush()
    rows = []
    for file in Path(folder).glob("*.jsonl"):
        rows += [json.loads(line) for line in file.read_text().splitlines()]
    rows = [row for row in rows if row.get("captured") == 1 and "event" not in row]
    keep = loc != 0
    good = len(rows) == 6 and all(row["rows"] == 12 for row in rows)
    for row, tensor in zip(rows[-2:], (x, y)):
        want = reference(tensor, keep)
        good &= abs(row["norm"] / want["norm"] - 1) < 1e-5
        good &= abs(row["row_norm_min"] / want["least"] - 1) < 1e-5
    check("without triton: records of a graph", good, rows[-1:])
    plain = capture(lambda: x + 1)
    return {"us for two taps": microseconds(graph, 30) - microseconds(plain, 30)}


def saves() -> None:
    """EAGLE3_DEBUG_SAVE from a graph: the first N, whole, of the right step."""
    from safetensors import safe_open

    folder = tempfile.mkdtemp()
    tap, texts = load_tap("saving", ON="1", DIR=folder, SAVE="x:3")
    process = part(tap, "speaker").STATE.process
    x = torch.zeros(300, 7168, device=DEVICE, dtype=torch.bfloat16)
    loc = torch.ones(300, dtype=torch.int64, device=DEVICE)
    sys_modules_flag(True)

    def run() -> None:
        tap.begin("m", batch(loc))
        tap.tap("x", x)
        tap.tap("other", x)

    graph = capture(run)
    sys_modules_flag(False)
    expected = []
    for number in range(6):
        x.copy_(torch.randn(300, 7168, device=DEVICE) + number)
        expected.append(x.cpu())
        graph.replay()
    torch.cuda.synchronize()
    process.flush()
    files = sorted(Path(folder).glob("*.safetensors"))
    good = len(files) == 3
    for file in files:
        with safe_open(file, "pt") as opened:
            meta = opened.metadata()
            step = int(meta["step"])
            good &= torch.equal(opened.get_tensor("tensor"), expected[step - 1])
            good &= meta["captured"] == "1" and meta["rows"] == "300"
    check("tensors saved from a graph", good, [f.name for f in files] or texts.texts)


def sys_modules_flag(on: bool) -> None:
    """What SGLang says while it makes warm-up runs and captures."""
    name = "sglang.srt.model_executor.cuda_graph_runner"
    sys.modules[name] = SimpleNamespace(is_capture_mode=on)  # type: ignore[assignment]
