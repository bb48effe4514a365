"""What SGLang's modules need to run inside a CUDA graph without compiled kernels, and
what the taps wrote meanwhile."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from patchkit.verify.probe import runtime

#: Tokens a request may hold.
LONGEST = 32


def mend_moe() -> None:
    """SGLang's MoE for a CPU reads counts on the host, which no capture allows; its
    torch-native one does not."""
    unquant = importlib.import_module("sglang.srt.layers.quantization.unquant")
    native = importlib.import_module("sglang.srt.layers.moe.fused_moe_native")

    def forward(self: Any, layer: Any, dispatch_output: Any, *_: Any, **__: Any) -> Any:
        return native.fused_moe_forward_native(layer, dispatch_output)

    for name in ("forward_cpu", "forward_native"):
        setattr(unquant.UnquantizedFusedMoEMethod, name, forward)


def backend(pools: runtime.Pools) -> Any:
    """Attention of decode-like batches with no read on the host: as many keys for each
    request as it may have, gathered by ``req_to_token`` and masked by ``seq_lens``."""
    module = importlib.import_module("sglang.srt.layers.attention.torch_native_backend")
    memory = importlib.import_module("sglang.srt.mem_cache.memory_pool")
    where = getattr(memory, "KVWriteLoc", None)

    class Safe(module.TorchNativeAttnBackend):  # type: ignore[misc]
        def init_forward_metadata(self, batch: Any) -> None:
            # 0.5.23 asks for it.
            self.swa_out_cache_loc = None

        def forward_decode(
            self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any,
            save_kv_cache: bool = True, **more: Any,
        ) -> Any:  # fmt: skip
            ends = forward_batch.seq_lens[:, None]
            return self._attend(q, k, v, layer, forward_batch, ends, save_kv_cache)

        def forward_extend(
            self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any,
            save_kv_cache: bool = True, **more: Any,
        ) -> Any:  # fmt: skip
            if forward_batch.forward_mode.name == "EXTEND":
                return super().forward_extend(
                    q, k, v, layer, forward_batch, save_kv_cache
                )
            # Some tokens each, the last of which have just been written.
            each = q.shape[0] // forward_batch.seq_lens.shape[0]
            behind = torch.arange(each, device=q.device) + 1
            if forward_batch.forward_mode.name == "TARGET_VERIFY":
                ends = forward_batch.seq_lens[:, None] + behind
            else:
                ends = forward_batch.seq_lens[:, None] - each + behind
            return self._attend(q, k, v, layer, forward_batch, ends, save_kv_cache)

        def _attend(
            self, q: Any, k: Any, v: Any, layer: Any, batch: Any, ends: Any, save: bool
        ) -> Any:
            if save and k is not None:
                loc = batch.out_cache_loc
                loc = loc if where is None else where(loc, None)
                pools.kv.set_kv_buffer(layer, loc, k, v)
            count, each = ends.shape
            index = pools.requests.req_to_token[batch.req_pool_indices, :LONGEST].long()
            keys = pools.kv.get_key_buffer(layer.layer_id)[index].float()
            values = pools.kv.get_value_buffer(layer.layer_id)[index].float()
            shared = layer.tp_q_head_num // keys.shape[2]
            keys = keys.repeat_interleave(shared, 2)
            values = values.repeat_interleave(shared, 2)
            asked = q.view(count, each, layer.tp_q_head_num, layer.qk_head_dim).float()
            score = torch.einsum("bthd,blhd->bthl", asked, keys) * layer.scaling
            seen = torch.arange(LONGEST, device=q.device) < ends[..., None]
            score = score.masked_fill(~seen[:, :, None], float("-inf")).softmax(-1)
            found = torch.einsum("bthl,blhd->bthd", score, values).to(q.dtype)
            return found.reshape(-1, layer.tp_q_head_num * layer.v_head_dim)

    runner = SimpleNamespace(
        device=pools.device,
        req_to_token_pool=pools.requests,
        token_to_kv_pool=pools.kv,
    )
    return Safe(runner)


class Static:
    """A batch on buffers that stay where they are, as a graph needs it.

    ``each``: tokens of a request. ``fill`` does what SGLang's runners do before they
    replay: slots of unused rows become 0, the dummy slot.
    """

    def __init__(
        self,
        pools: runtime.Pools,
        safe: Any,
        mode: str,
        size: int,
        each: int,
        spec_info: Any = None,
    ) -> None:
        info = importlib.import_module("sglang.srt.model_executor.forward_batch_info")
        on = pools.device

        def buffer(count: int, value: int = 0) -> torch.Tensor:
            return torch.full((count,), value, dtype=torch.int64, device=on)

        self.each, self.size, self.spec_info = each, size, spec_info
        self.ids, self.positions = buffer(size * each), buffer(size * each)
        self.slots = buffer(size * each)
        self.lengths, self.requests = buffer(size, each), buffer(size)
        self.backend = safe
        self.batch = runtime.known(
            info.ForwardBatch,
            forward_mode=info.ForwardMode[mode],
            batch_size=size,
            input_ids=self.ids,
            req_pool_indices=self.requests,
            seq_lens=self.lengths,
            seq_lens_cpu=self.lengths.cpu(),
            seq_lens_sum=size * each,
            out_cache_loc=self.slots,
            positions=self.positions,
            return_logprob=False,
            spec_info=spec_info,
            capture_hidden_mode=info.CaptureHiddenMode.FULL,
            req_to_token_pool=pools.requests,
            token_to_kv_pool=pools.kv,
            attn_backend=safe,
            num_token_non_padded_cpu=size * each,
            extend_seq_lens=buffer(size, each),
            extend_seq_lens_cpu=[each] * size,
            extend_num_tokens=size * each,
        )

    def fill(self, fields: dict[str, torch.Tensor], hidden: Any = None) -> None:
        """``fields``: of a smaller batch. ``hidden`` [rows, width]: for the draft."""
        self.slots.zero_()
        self.lengths.fill_(self.each)
        for name, values in fields.items():
            getattr(self, name)[: values.shape[0]].copy_(values)
        if hidden is not None:
            self.spec_info.hidden_states[: hidden.shape[0]].copy_(hidden)


class Verify:
    """spec_info of a target's verify batch."""

    def __init__(self, each: int) -> None:
        self.draft_token_num = each
        self.capture_hidden_mode = None
        self.hidden_states = None

    def is_draft_input(self) -> bool:
        return False

    def is_verify_input(self) -> bool:
        return True


class Lines:
    """What the taps wrote since the last time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.at: dict[Path, int] = {}
        self.events: list[dict[str, Any]] = []

    def take(self) -> list[dict[str, Any]]:
        """Records; ``events`` has what else there was."""
        from patchkit.verify.probe.device import flush_tap

        flush_tap()
        rows = []
        for file in sorted(self.folder.glob("*.jsonl")):
            data = file.read_bytes()
            rows += [json.loads(x) for x in data[self.at.get(file, 0) :].splitlines()]
            self.at[file] = len(data)
        self.events = [row for row in rows if "event" in row]
        return [row for row in rows if "event" not in row]


@contextlib.contextmanager
def sglang_captures() -> Iterator[None]:
    """SGLang's own word that graphs are captured now, with its warm-up runs."""
    for name in (
        "sglang.srt.model_executor.runner_utils.capture_mode",
        "sglang.srt.model_executor.cuda_graph_runner",
    ):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "model_capture_mode"):
            with module.model_capture_mode():
                yield
            return
    raise RuntimeError("this release does not say when it captures")
