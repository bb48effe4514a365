"""A stage for SGLang's graph runners: what a server has around them; a comparison."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from kit import check

from patchkit.verify.probe import runtime

STEPS = 3
EACH = STEPS + 1


class Stage:
    def __init__(self, bench: Any, module: Any) -> None:
        self.bench = bench
        self.module = module
        rig = bench.rig
        args = importlib.import_module("sglang.srt.server_args")
        self.args = args.get_global_server_args()
        wanted = {
            "device": "cuda",
            "cuda_graph_bs": [1, 2, 4],
            "disable_cuda_graph": False,
            "disable_cuda_graph_padding": False,
            "speculative_num_steps": STEPS,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": EACH,
            "enable_return_hidden_states": False,
            "enable_torch_compile": False,
            "enable_nan_detection": False,
        }
        for name, value in wanted.items():
            setattr(self.args, name, value)
        self.info = importlib.import_module(
            "sglang.srt.model_executor.forward_batch_info"
        )
        spec = importlib.import_module("sglang.srt.speculative.spec_info")
        self.algorithm = spec.SpeculativeAlgorithm.from_string
        for safe in (bench.safe, bench.draft_safe):
            safe.init_cuda_graph_state = lambda *a, **k: None
            safe.get_cuda_graph_seq_len_fill_value = lambda: 1
            safe.init_forward_metadata_capture_cuda_graph = lambda *a, **k: None
            safe.init_forward_metadata_replay_cuda_graph = lambda *a, **k: None
        self.hidden = rig.hidden

    def model_runner(self, which: str, algorithm: str | None) -> Any:
        rig, bench = self.bench.rig, self.bench
        draft = which == "draft"
        pools = rig.draft_pools if draft else rig.pools
        safe = bench.draft_safe if draft else bench.safe
        model = rig.draft if draft else rig.target
        self.args.speculative_algorithm = algorithm
        fields = rig.draft_fields if draft else rig.target_fields
        return SimpleNamespace(
            device="cuda",
            gpu_id=0,
            dtype=rig.dtype,
            tp_size=1,
            dp_size=1,
            server_args=self.args,
            spec_algorithm=self.algorithm(algorithm),
            is_draft_worker=draft,
            eagle_use_aux_hidden_state=True,
            attn_backend=safe,
            model=model,
            req_to_token_pool=pools.requests,
            token_to_kv_pool=pools.kv,
            tp_group=SimpleNamespace(barrier=lambda: None, ca_comm=None),
            lora_manager=None,
            decode_attn_backend_group=[],
            model_config=SimpleNamespace(
                is_encoder_decoder=False,
                hidden_size=self.hidden,
                vocab_size=fields["vocab_size"],
                dtype=rig.dtype,
                hf_config=model.config,
            ),
        )

    # -- the comparison

    def trials(
        self,
        label: str,
        made: Callable[[int, int], Any],
        eager: Callable[[Any], Any],
        replay: Callable[[Any], Any],
        records: int,
        each: int,
    ) -> None:
        """What the taps say at a replay, against what they say eagerly, which is
        compared with the oracle's elsewhere. ``records``: of a forward."""
        order = random.Random(label)
        wrong: list[str] = []
        worst = 0.0
        self.bench.lines.take()
        sizes = []
        for number in range(12):
            real = order.choice([1, 2, 3])
            eager(made(real, number))
            torch.cuda.synchronize()
            want = self.bench.lines.take()
            replay(made(real, number))
            torch.cuda.synchronize()
            rows = self.bench.lines.take()
            if len(want) != records or [r["site"] for r in rows] != [
                r["site"] for r in want
            ]:
                wrong.append(f"{real}: {len(want)} eager, {len(rows)} replayed")
                continue
            for got, one in zip(rows, want):
                good = got["captured"] == 1 and one["captured"] == 0
                good &= got["nonfinite"] == 0 and got["batch"] >= real
                # Rows pruned to one of each request have no mask.
                pruned = label == "draft extend" and got["site"].endswith("concat")
                good &= got["rows"] == one["rows"] or pruned
                good &= got.get("fc") == one.get("fc")
                good &= got.get("layer") == one.get("layer")
                if got["rows"] == one["rows"]:
                    error = abs(got["norm"] / one["norm"] - 1)
                    worst = max(worst, error)
                    good &= error < (1e-5 if got["dtype"] == "float32" else 2e-2)
                if not good:
                    wrong.append(f"{real}: {got} not {one}")
            sizes += [f"{got['rows']}/{got['shape'][0]}" for got in rows[:1]]
        check(
            f"SGLang's runner, {label}: 12 replays of {records} records",
            not wrong,
            wrong[:2] or f"rows {' '.join(sizes)}, worst {worst:.0e}",
        )

    def batch(self, mode: str, fields: dict[str, Any], which: str, **more: Any) -> Any:
        rig = self.bench.rig
        pools = rig.draft_pools if which == "draft" else rig.pools
        safe = self.bench.draft_safe if which == "draft" else self.bench.safe
        lengths = fields["lengths"]
        return runtime.known(
            self.info.ForwardBatch,
            forward_mode=self.info.ForwardMode[mode],
            batch_size=lengths.shape[0],
            input_ids=fields["ids"],
            req_pool_indices=fields["requests"],
            seq_lens=lengths,
            seq_lens_cpu=lengths.cpu(),
            seq_lens_sum=int(lengths.sum()),
            out_cache_loc=fields["slots"],
            positions=fields["positions"],
            return_logprob=False,
            capture_hidden_mode=self.info.CaptureHiddenMode.FULL,
            req_to_token_pool=pools.requests,
            token_to_kv_pool=pools.kv,
            attn_backend=safe,
            num_token_non_padded_cpu=fields["ids"].shape[0],
            spec_algorithm=self.algorithm("EAGLE3"),
            **more,
        )
