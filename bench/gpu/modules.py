"""SGLang's own modules inside CUDA graphs, patched by debug-logging:

    python bench/gpu/modules.py TREE [--dtype float32] [--out FOLDER]

TREE: a folder that holds a patched ``sglang``. The real target, draft and logits
processor of the release, tiny, are captured for several batch sizes and modes, and
replayed with changing, padded batches in any order. What the taps say at each replay
must be what an independent oracle saw in an eager run of the same batch. Needs
transformers besides what ``run.py`` needs, and no compiled package of SGLang's.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]
SIZES = (1, 2, 4)
PROMPTS = [[3, 17, 99, 4, 56], [8, 120, 64], [31, 32, 33, 90]]


class Bench:
    def __init__(self, tree: Path, dtype: str, lines: Any) -> None:
        import torch
        from kit import log

        from patchkit.verify.probe import device, environment, runtime, standins
        from patchkit.verify.probe.ledger import Ledger
        from patchkit.verify.probe.rig import Rig

        self.lines = lines
        self.worst = 0.0
        ledger = Ledger(root=str(tree))
        on = device.Device("cuda", False, 1)
        hiding = device.Hiding(torch, on, ledger)
        environment.shim_libraries(ledger)
        environment.find_sglang_in(tree)
        standins.install(ledger)
        for name in (
            "sglang.srt.models.deepseek_v2",
            "sglang.srt.models.llama_eagle3",
            "sglang.srt.layers.logits_processor",
        ):
            importlib.import_module(name)
        hiding.imported()

        @contextlib.contextmanager
        def step(name: str) -> Iterator[None]:
            yield

        torch.manual_seed(0)
        rank = runtime.Rank(tempfile.mktemp(), device=device.attach(on, 0))
        self.rig = Rig(getattr(torch, dtype), rank, ledger, step)
        # What it notes is read from the device at once; the tensors are enough here.
        self.rig.oracle.note = lambda *a, **k: None
        import graphed

        graphed.mend_moe()
        self.rig.set_up()
        refusal = self.rig.try_capture()
        assert not refusal, refusal
        self.rig.target.set_eagle3_layers_to_capture(self.rig.prompts["layer_ids"])
        self.layers = sorted(self.rig.target.model.layers_to_capture)
        self.safe = graphed.backend(self.rig.pools)
        self.draft_safe = graphed.backend(self.rig.draft_pools)
        # Drafts and targets hold the same requests in the same slots.
        self.lengths = [len(prompt) for prompt in PROMPTS]
        log("captured layers", self.layers, "hidden", self.rig.hidden)

    def prefill(self) -> None:
        """All prompts, eagerly, through target and draft; then the oracle's word."""
        from kit import check

        from patchkit.verify.probe import batches, runtime

        rig = self.rig
        rig.oracle.begin("prefill")
        batch = batches.extend_batch(rig.pools, PROMPTS)
        runtime.forward(rig.target, batch, rig.pools.backend)
        joined = rig.oracle.aux_states(self.layers)
        info = batches.DraftInput(joined)
        batch = batches.extend_batch(rig.draft_pools, PROMPTS, info)
        runtime.forward(rig.draft, batch, rig.draft_pools.backend)
        rows = self.lines.take()
        problems = self.compare(rows, self.target_truth(joined) + self.draft_truth())
        check("prefill, eager: records equal the oracle's", not problems, problems[:2])

    # -- truth

    def target_truth(self, joined: Any) -> list[tuple[str, Any, Any]]:
        states = joined.split(self.rig.hidden, dim=-1)
        found = [
            ("deepseek_v2.aux", layer, state)
            for layer, state in zip(self.layers, states)
        ]
        return [*found, ("logits_processor.concat", None, joined)]

    def draft_truth(self, skipped: Any = None) -> list[tuple[str, Any, Any]]:
        oracle = self.rig.oracle
        if skipped is not None:
            received = made = skipped
        else:
            received, made = oracle.fc_received, oracle.fc_returned
        return [
            ("llama_eagle3.fc_in", None, received),
            ("llama_eagle3.fc_out", None, made),
            ("logits_processor.concat", None, oracle.draft_stream),
        ]

    def compare(
        self, rows: list[dict[str, Any]], truth: list[tuple[str, Any, Any]]
    ) -> list[str]:
        """What is wrong with the records of one target and, or, draft forward."""
        from patchkit.verify.probe.oracle import statistics

        if [row["site"] for row in rows] != [site for site, _, _ in truth]:
            return [f"sites {[row['site'] for row in rows]}"]
        problems = []
        for row, (site, layer, tensor) in zip(rows, truth):
            want = statistics(tensor)
            if layer is not None and row.get("layer") != layer:
                problems.append(f"{site}: layer {row.get('layer')}, not {layer}")
            if row["rows"] != tensor.shape[0] or row["nonfinite"]:
                problems.append(f"{site}: rows {row['rows']}, not {tensor.shape[0]}")
            close = 1e-5 if row["dtype"] == "float32" else 2e-2
            self.worst = max(self.worst, abs(row["norm"] / want["norm"] - 1))
            for key in ("norm", "absmax"):
                if abs(row[key] / want[key] - 1) > close:
                    problems.append(f"{site}: {key} {row[key]}, not {want[key]}")
            if abs(row["mean"] - want["mean"]) > close * want["absmax"]:
                problems.append(f"{site}: mean {row['mean']}, not {want['mean']}")
        for model in {row["model"] for row in rows}:
            if len({row["step"] for row in rows if row["model"] == model}) != 1:
                problems.append(f"{model}: several steps in one forward")
        return problems

    # -- batches

    def fields(self, count: int, each: int, seed: int, verify: bool) -> dict[str, Any]:
        """``count`` requests with ``each`` new tokens; the same slots every time."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(1, 120, (count * each,), generator=generator)
        held = torch.tensor(self.lengths[:count])
        positions = (held[:, None] + torch.arange(each)).reshape(-1)
        slots = torch.arange(40, 40 + count * each)
        for pools in (self.rig.pools, self.rig.draft_pools):
            for row in range(count):
                new = slots[row * each : (row + 1) * each].to(pools.device).int()
                at = self.lengths[row]
                pools.requests.req_to_token[row, at : at + each] = new
        fields = {
            "ids": ids,
            "positions": positions,
            "slots": slots,
            "lengths": held if verify else held + each,
            "requests": torch.arange(count),
        }
        return {name: one.to(self.rig.rank.device) for name, one in fields.items()}

    def scenario(self, label: str, mode: str, each: int, width: int) -> dict[str, int]:
        """Graphs of all sizes, replayed in any order. ``width``: of what a draft
        receives; 0 for a target."""
        import torch
        from graphed import Static, Verify, sglang_captures
        from kit import capture, check, log

        from patchkit.verify.probe import batches, runtime

        rig = self.rig
        pools = rig.draft_pools if width else rig.pools
        safe = self.draft_safe if width else self.safe
        model = rig.draft if width else rig.target

        def made(size: int) -> Any:
            info: Any = Verify(each) if mode == "TARGET_VERIFY" else None
            if width:
                empty = torch.zeros(
                    size * each, width, dtype=rig.dtype, device=pools.device
                )
                info = batches.DraftInput(empty)
                # 0.5.23: all rows, not one of each request.
                info.select_index = None
            return Static(pools, safe, mode, size, each, info)

        def forward(static: Any) -> Any:
            rig.oracle.begin(label)
            return runtime.forward(model, static.batch, safe)

        graphs = []
        with sglang_captures():
            for size in SIZES:
                static = made(size)
                graphs.append((size, static, capture(lambda s=static: forward(s))))
        warm = self.lines.take()
        check(f"{label}: warm-ups and captures leave no record", not warm, warm[:1])
        sites = {event["site"] for event in self.lines.events}
        log(f"{label}: captured", ", ".join(sorted(sites)))
        order = random.Random(label)
        wrong: list[str] = []
        count = 0
        last = 0
        for number in range(24):
            real = order.choice([1, 2, 3])
            size, static, graph = order.choice([g for g in graphs if g[0] >= real])
            fields = self.fields(real, each, number, mode == "TARGET_VERIFY")
            hidden = None
            if width:
                hidden = torch.randn(
                    real * each, width, dtype=rig.dtype, device=pools.device
                )
            # Eagerly, a batch of just the real requests: what the oracle sees.
            alone = made(real)
            alone.fill(fields, hidden)
            forward(alone)
            torch.cuda.synchronize()
            if width:
                skipped = hidden if width == rig.hidden else None
                truth = self.draft_truth(skipped)
            else:
                truth = self.target_truth(rig.oracle.aux_states(self.layers))
            truth = [(site, layer, one.clone()) for site, layer, one in truth]
            eager = self.lines.take()
            wrong += [f"eager: {one}" for one in self.compare(eager, truth)]
            static.fill(fields, hidden)
            graph.replay()
            torch.cuda.synchronize()
            rows = self.lines.take()
            count += len(rows)
            found = self.compare(rows, truth)
            for row in rows:
                good = row["captured"] == 1 and row["mode"] == mode
                good &= row["batch"] == size and row["shape"][0] == size * each
                good &= row["step"] > last
                if not good:
                    found.append(f"{row['site']}: {row}")
            last = max((row["step"] for row in rows), default=0)
            if width:
                fc = [row["fc"] for row in rows if row["site"].endswith("fc_out")]
                if fc != ["skipped" if width == rig.hidden else "applied"]:
                    found.append(f"fc {fc}")
            wrong += [f"{real} of {size}: {one}" for one in found]
        check(f"{label}: 24 replays, {count} records", not wrong, wrong[:3])
        return {"records": count}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    os.environ.update({"EAGLE3_DEBUG": "1", "EAGLE3_DEBUG_DIR": str(folder)})
    from patchkit.verify.probe import device, environment

    environment.prepare(device.Device("cuda", False, 1))
    import logging

    logging.getLogger("sglang").setLevel(logging.WARNING)
    import torch
    import transformers
    from graphed import Lines
    from kit import FAILED, log

    began = time.time()
    bench = Bench(options.tree.resolve(), options.dtype, Lines(folder))
    import sglang

    log(
        f"sglang {sglang.__version__} {options.dtype}, torch {torch.__version__},",
        f"transformers {transformers.__version__}, {torch.cuda.get_device_name()}",
    )
    import runners

    hidden = bench.rig.hidden
    bench.prefill()
    bench.scenario("target decode", "DECODE", 1, 0)
    bench.scenario("target verify", "TARGET_VERIFY", 3, 0)
    bench.scenario("draft decode, fc", "DECODE", 1, 3 * hidden)
    bench.scenario("draft decode, fc skipped", "DECODE", 1, hidden)
    modes = importlib.import_module("sglang.srt.model_executor.forward_batch_info")
    extend = "DRAFT_EXTEND"
    if not hasattr(modes.ForwardMode, extend):
        extend = "DRAFT_EXTEND_V2"
    bench.scenario("draft extend", extend, 3, 3 * hidden)
    runners.run(bench)
    log("worst relative difference of a norm", f"{bench.worst:.1e}")
    log(f"{time.time() - began:.0f} s; failed:", FAILED or "none")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
