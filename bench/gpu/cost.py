"""What a tap costs: one node, and a stand-in of a 61-layer target."""

from __future__ import annotations

import functools
import time
from typing import Any

import torch
import triton
from kit import batch, capture, check, load_tap, log, microseconds, nodes, part

DEVICE = torch.device("cuda")
HIDDEN = 7168
LAYERS = 61
NODES = 100


@triton.jit
def nothing(x):
    pass


def bandwidth() -> float:
    """Copy bandwidth in bytes a microsecond, bytes read and written."""
    a = torch.ones(1 << 29, dtype=torch.int32, device=DEVICE)
    b = torch.empty_like(a)
    # A kernel: as a node of a graph, a copy is a slower kind of transfer.
    graph = capture(lambda: torch.add(a, 1, out=b))
    return 2 * a.numel() * a.element_size() / microseconds(graph, 15)


def node() -> dict[str, dict[int, tuple[float, float]]]:
    """Microseconds per node of a graph of 100, caches hot and flushed."""
    tap, _ = load_tap("node", ON="1")
    process = part(tap, "speaker").STATE.process
    launching = part(tap, "launch")
    process.reader.add = lambda lane: None
    flush = torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE)
    x = torch.ones(1, 1, device=DEVICE)
    device = process.device_of(x, capturing=False)
    of_batch = part(tap, "forward").of_batch

    def tapped(mask: bool = True, segments: int = 1, **changes: int) -> Any:
        def run(x: torch.Tensor) -> None:
            loc = slots(x.shape[0])
            forward = of_batch("m", batch(loc if mask else loc[:0]))
            plan = launching.plan

            def planned(rows: int, *args: int) -> Any:
                found = vars(plan(rows, *args)) | changes
                found["programs"] = min(found["programs"], rows)
                # A word for each thread of the closing program, at least.
                least = max(found["programs"], 32 * found["warps"])
                found["bucket"] = launching.power_of_two(least)
                return launching.Plan(**found)

            launching.plan = planned
            device.send(f"x{mask}{changes}", x, forward, segments=segments)
            launching.plan = plan

        return run

    few = {
        "a node that does nothing": lambda x: nothing[(1,)](x),
        "tap": tapped(),
        "tap, no mask": tapped(mask=False),
        "tap, 8 warps, 2048 columns": tapped(warps=8, columns=2048, tile_rows=1),
        "tap, 3 segments": tapped(segments=3),
        "torch.linalg.vector_norm": lambda x: torch.linalg.vector_norm(
            x, dtype=torch.float32
        ),
    }
    many = {
        "a node that does nothing": few["a node that does nothing"],
        "tap": few["tap"],
        "tap, no mask": few["tap, no mask"],
        **{
            f"tap, {p} x {t} rows, {c} columns, {w} warps": tapped(
                programs=p, tile_rows=t, columns=c, warps=w
            )
            for p, t, c, w in (
                *((256, 8, 256, 8), (256, 4, 512, 8), (256, 4, 1024, 8)),
                *((256, 2, 512, 4), (256, 16, 256, 16)),
            )
        },
        "torch.linalg.vector_norm": few["torch.linalg.vector_norm"],
    }  # fmt: skip
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for rows in (1, 4, 16, 64, 128, 256, 512, 4096):
        count = NODES if rows <= 512 else 20
        variants = few if rows <= 256 else many
        for name, run in variants.items():
            width = HIDDEN * (3 if "segments" in name else 1)
            tensors = [
                torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)
                for _ in range(count)
            ]
            try:
                hot = capture(each(run, [tensors[0]] * count))
                cold = capture(each(run, tensors))
                found.setdefault(name, {})[rows] = (
                    microseconds(hot, 11) / count,
                    microseconds(cold, 9, flush) / count,
                )
            except Exception as error:
                log("not timed", name, rows, f"{type(error).__name__}: {error}"[:200])
    return found


@functools.cache
def slots(rows: int) -> torch.Tensor:
    """Made at the first warm-up, so that it is no node."""
    return torch.ones(rows, dtype=torch.int64, device=DEVICE)


def each(run: Any, tensors: list[torch.Tensor]) -> Any:
    def all_of_them() -> None:
        for tensor in tensors:
            run(tensor)

    return all_of_them


def stand_in() -> dict[int, dict[str, float]]:
    """61 layers of two matrix products and a norm; microseconds of a replay."""
    tap, texts = load_tap("standin", ON="1")
    off, _ = load_tap("standin_off")

    def weights(rows: int, columns: int) -> list[torch.Tensor]:
        return [
            torch.randn(rows, columns, device=DEVICE, dtype=torch.bfloat16) * 0.01
            for _ in range(8)
        ]

    up, down = weights(HIDDEN, 2048), weights(2048, HIDDEN)
    fc = torch.nn.Linear(3 * HIDDEN, HIDDEN, bias=False, device=DEVICE)
    fc = fc.to(torch.bfloat16)
    functional = torch.nn.functional
    fake: Any = type("Model", (), {})()
    fake.layers_to_capture = [2, 30, 58]
    fake.config = type("Config", (), {"hidden_size": HIDDEN})()

    def model(x: torch.Tensor, given: Any, how: str) -> torch.Tensor:
        t = off if how == "gate off" else tap
        on = how in ("default sites", "all 61 layers", "gate off")
        if on and t.ENABLED:
            t.begin("deepseek_v2", given)
        states = []
        for layer in range(LAYERS):
            if how == "all 61 layers" and t.ENABLED:
                t.tap_stream("deepseek_v2.layer", x, None, layer)
            hidden = functional.rms_norm(x, (HIDDEN,)) @ up[layer % 8]
            x = x + functional.silu(hidden) @ down[layer % 8]
            if layer in (2, 30, 58):
                states.append(x)
                if how == "item":
                    f"{x.float().norm().item()} {x.float().abs().max().item()}"
        packed = torch.cat(states, -1)
        if on and t.ENABLED:
            t.tap_states("deepseek_v2.aux", packed, fake)
            t.tap_parts("logits_processor.concat", packed)
            t.tap_concat("logits_processor.concat", packed, x)
        if on and t.ENABLED:
            t.begin("llama_eagle3", given)
            t.tap_fc_in("llama_eagle3.fc_in", packed, fc)
        made = fc(packed)
        if on and t.ENABLED:
            t.tap_fc_out("llama_eagle3.fc_out", made, fc)
        return functional.rms_norm(x, (HIDDEN,)) @ up[0] + made[:, :2048]

    kinds = ("stock", "default sites", "all 61 layers", "gate off")

    def at(size: int) -> dict[str, float]:
        x = torch.randn(size, HIDDEN, device=DEVICE, dtype=torch.bfloat16)
        given = batch(torch.ones(size, dtype=torch.int64, device=DEVICE))

        def one(how: str) -> Any:
            return lambda: model(x, given, how)

        graphs = {how: capture(one(how)) for how in kinds}
        # Interleaved, so that a drift of the clock touches all alike.
        times: dict[str, list[float]] = {how: [] for how in kinds}
        for _ in range(5):
            for how in kinds:
                times[how].append(microseconds(graphs[how], 25))
        here = {how: sorted(times[how])[2] for how in kinds}
        here["stock, no graph"] = eager(one("stock"))
        here["no graph, .item() at 3 layers"] = eager(one("item"))
        here["no graph, default sites"] = eager(one("default sites"))
        if size == 16:
            counts = {how: nodes(one(how)) for how in kinds}
            good = counts["gate off"] == counts["stock"]
            check("gate off: the graph has no node more", good, counts)
            extra = counts["default sites"] - counts["stock"]
            check("default sites: a node each", extra == 4, counts)
            extra = counts["all 61 layers"] - counts["default sites"]
            check("all layers: a node each", extra == LAYERS, counts)
        return here

    with torch.no_grad():
        found = {size: at(size) for size in (1, 16, 64, 512)}
    silent = [text for text in texts.texts if "silent" in text or "failed" in text]
    check("the stand-in's taps all spoke", not silent, silent[:3])
    return found


def eager(run: Any) -> float:
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(15):
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return sorted(times)[7]
