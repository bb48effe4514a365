"""SGLang's own graph runners around the tiny models: capture, padding and replay.

In releases whose runners stand in ``cuda_graph_runner``: the target's (verify, decode),
the draft's multi-step one and the draft's extend. The objects that they belong to in a
server are stood in for by as much as the runners ask of them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from kit import check, log
from stage import EACH, STEPS, Stage

from patchkit.verify.probe import runtime


def run(bench: Any) -> None:
    try:
        module = importlib.import_module("sglang.srt.model_executor.cuda_graph_runner")
    except ImportError:
        log("not run: this release's graph runners ask for a whole model runner")
        return
    module.graph_capture = _graph_capture
    runners = Runners(bench, module)
    for name in ("verify", "decode", "draft", "draft_extend"):
        try:
            getattr(runners, name)()
        except Exception as error:
            import traceback

            traceback.print_exc()
            check(f"SGLang's runner: {name}", False, f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def _graph_capture(stream: Any = None) -> Iterator[Any]:
    """SGLang's own asks the process group's device, which is a CPU here."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield SimpleNamespace(stream=stream)


class Runners(Stage):
    def verify(self) -> None:
        from graphed import Verify

        bench = self.bench
        runner = self.module.CudaGraphRunner(self.model_runner("target", "EAGLE3"))

        def made(real: int, seed: int) -> Any:
            fields = bench.fields(real, EACH, seed, True)
            return self.batch("TARGET_VERIFY", fields, "target", spec_info=Verify(EACH))

        def eager(batch: Any) -> None:
            runtime.forward(bench.rig.target, batch, bench.safe)

        records = len(bench.layers) + 1
        self.trials("target verify", made, eager, runner.replay, records, EACH)

    def decode(self) -> None:
        bench = self.bench
        self.args.enable_return_hidden_states = True
        runner = self.module.CudaGraphRunner(self.model_runner("target", None))

        def made(real: int, seed: int) -> Any:
            return self.batch("DECODE", bench.fields(real, 1, seed, False), "target")

        def eager(batch: Any) -> None:
            runtime.forward(bench.rig.target, batch, bench.safe)

        records = len(bench.layers) + 1
        self.trials("target decode", made, eager, runner.replay, records, 1)

    def _worker(self) -> Any:
        bench = self.bench
        model_runner = self.model_runner("draft", "EAGLE3")

        def forward(batch: Any, skip_attn_backend_init: bool = False) -> Any:
            output = runtime.forward(bench.rig.draft, batch, bench.draft_safe)
            return SimpleNamespace(logits_output=output)

        model_runner.draft_attn_backend = SimpleNamespace(
            attn_backends=[bench.draft_safe] * STEPS,
            init_cuda_graph_state=lambda *a, **k: None,
            init_forward_metadata_capture_cuda_graph=lambda *a, **k: None,
            init_forward_metadata_replay_cuda_graph=lambda *a, **k: None,
        )
        module = importlib.import_module("sglang.srt.speculative.eagle_worker")
        worker = SimpleNamespace(
            model_runner=model_runner,
            draft_model_runner=SimpleNamespace(forward=forward),
            draft_attn_backend=model_runner.draft_attn_backend,
            draft_extend_attn_backend=bench.draft_safe,
            speculative_algorithm=self.algorithm("EAGLE3"),
            eagle_use_aux_hidden_state=True,
            hot_token_id=None,
            topk=1,
            speculative_num_steps=STEPS,
            speculative_num_draft_tokens=EACH,
            server_args=self.args,
            model_config=model_runner.model_config,
        )
        worker.draft_forward = functools.partial(
            module.EAGLEWorker.draft_forward, worker
        )
        return worker

    def _draft_input(self) -> Any:
        return importlib.import_module("sglang.srt.speculative.eagle_info")

    def draft(self) -> None:
        bench = self.bench
        module = importlib.import_module(
            "sglang.srt.speculative.eagle_draft_cuda_graph_runner"
        )
        worker = self._worker()
        runner = module.EAGLEDraftCudaGraphRunner(worker)
        info = self._draft_input()
        mode = self.info.CaptureHiddenMode.LAST

        def made(real: int, seed: int) -> Any:
            fields = bench.fields(real, STEPS, seed, False)
            on = bench.rig.rank.device
            generator = torch.Generator().manual_seed(seed)
            hidden = torch.randn(real, self.hidden, generator=generator)
            spec = info.EagleDraftInput(
                topk_p=torch.ones(real, 1, device=on),
                topk_index=torch.randint(1, 60, (real, 1), generator=generator).to(on),
                hidden_states=hidden.to(on, bench.rig.dtype),
                capture_hidden_mode=mode,
            )
            fields["positions"] = fields["positions"][::STEPS].clone()
            # Not to look at slots that a later step of the last trial has written.
            fields["lengths"] = fields["lengths"] - STEPS + 1
            fields["ids"] = fields["ids"][::STEPS]
            batch = self.batch("DECODE", fields, "draft", spec_info=spec)
            batch.capture_hidden_mode = mode
            return batch

        # Its last step takes a token and runs nothing.
        records = 3 * (STEPS - 1)
        self.trials("draft", made, worker.draft_forward, runner.replay, records, 1)

    def draft_extend(self) -> None:
        bench = self.bench
        module = importlib.import_module(
            "sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner"
        )
        worker = self._worker()
        runner = module.EAGLEDraftExtendCudaGraphRunner(worker)
        info = self._draft_input()
        mode = self.info.CaptureHiddenMode.LAST

        def made(real: int, seed: int) -> Any:
            fields = bench.fields(real, EACH, seed, False)
            on = bench.rig.rank.device
            generator = torch.Generator().manual_seed(seed)
            hidden = torch.randn(real * EACH, 3 * self.hidden, generator=generator)
            spec = info.EagleDraftInput(
                hidden_states=hidden.to(on, bench.rig.dtype),
                accept_length=torch.full((real,), EACH, dtype=torch.int32, device=on),
            )
            spec.positions = None
            batch = self.batch(
                *("DRAFT_EXTEND", fields, "draft"),
                spec_info=spec,
                extend_seq_lens=torch.full((real,), EACH, device=on),
                extend_seq_lens_cpu=[EACH] * real,
            )
            batch.capture_hidden_mode = mode
            batch.padded_static_len = -1
            return batch

        def eager(batch: Any) -> None:
            runtime.forward(bench.rig.draft, batch, bench.draft_safe)

        self.trials("draft extend", made, eager, runner.replay, 3, EACH)
