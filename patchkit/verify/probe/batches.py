"""``ForwardBatch`` objects as the scheduler would make them, without a scheduler."""

from __future__ import annotations

from typing import Any

import torch

from patchkit.verify.probe.runtime import Pools, known

Tokens = list[list[int]]


class DraftInput:
    """What the draft reads from ``spec_info``: ``hidden_states`` [tokens, k*hidden]."""

    def __init__(self, hidden_states: torch.Tensor) -> None:
        self.hidden_states = hidden_states
        self.topk_p = None

    def is_draft_input(self) -> bool:
        return True

    def is_verify_input(self) -> bool:
        return False


def extend_batch(
    pools: Pools,
    prompts: Tokens,
    spec_info: Any = None,
    *,
    keep: str = "FULL",
    logprob_starts: list[int] | None = None,
) -> Any:
    """Prefill of ``prompts`` into an empty cache, slots 1, 2, … in order.

    ``keep``: of which rows hidden states are kept; EAGLE's prefill asks for all
    (``CaptureHiddenMode.FULL``). ``logprob_starts``: return log-probabilities of the
    prompts' tokens from these positions on.
    """
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    lengths = [len(prompt) for prompt in prompts]
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    on = pools.device
    slots = torch.arange(1, sum(lengths) + 1, device=on)
    for row, (start, length) in enumerate(zip(starts, lengths)):
        taken = slots[start : start + length]
        pools.requests.req_to_token[row, :length] = taken.int()
    return _batch(
        pools,
        forward_mode=ForwardMode.EXTEND,
        input_ids=torch.tensor([t for prompt in prompts for t in prompt], device=on),
        positions=torch.cat([torch.arange(n, device=on) for n in lengths]),
        seq_lens=lengths,
        out_cache_loc=slots,
        spec_info=spec_info,
        num_token_non_padded_cpu=sum(lengths),
        extend_num_tokens=sum(lengths),
        extend_seq_lens=torch.tensor(lengths, device=on),
        extend_prefix_lens=torch.zeros(len(lengths), dtype=torch.int64, device=on),
        extend_start_loc=torch.tensor(starts, device=on),
        extend_seq_lens_cpu=lengths,
        extend_prefix_lens_cpu=[0] * len(lengths),
        extend_logprob_start_lens_cpu=logprob_starts or [0] * len(lengths),
        capture_hidden_mode=_hidden_mode(keep),
        **_logprobs(prompts, logprob_starts, on),
    )


def _logprobs(prompts: Tokens, starts: list[int] | None, on: str) -> dict[str, Any]:
    """Fields of a batch that asks for its prompts' log-probabilities."""
    if starts is None:
        return {"return_logprob": False}
    # the token that each row predicts; of the last row any will do
    wanted = [t for p, s in zip(prompts, starts) for t in [*p[s + 1 :], 0]]
    return {
        "return_logprob": True,
        "top_logprobs_nums": [0] * len(prompts),
        "token_ids_logprobs": [None] * len(prompts),
        "extend_input_logprob_token_ids_gpu": torch.tensor(wanted, device=on),
    }


def _hidden_mode(keep: str) -> Any:
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode

    return CaptureHiddenMode[keep]


def decode_batch(
    pools: Pools,
    lengths: list[int],
    tokens: list[int],
    spec_info: Any = None,
    *,
    keep: str = "FULL",
) -> Any:
    """One token each for requests that hold ``lengths`` tokens, from ``extend``."""
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    first = sum(lengths) + 1
    on = pools.device
    slots = torch.arange(first, first + len(tokens), device=on)
    for row, length in enumerate(lengths):
        pools.requests.req_to_token[row, length] = int(slots[row])
    return _batch(
        pools,
        forward_mode=ForwardMode.DECODE,
        input_ids=torch.tensor(tokens, device=on),
        positions=torch.tensor(lengths, device=on),
        seq_lens=[length + 1 for length in lengths],
        out_cache_loc=slots,
        spec_info=spec_info,
        num_token_non_padded_cpu=len(tokens),
        return_logprob=False,
        capture_hidden_mode=_hidden_mode(keep),
    )


def _batch(pools: Pools, *, seq_lens: list[int], **fields: Any) -> Any:
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch

    return known(
        ForwardBatch,
        batch_size=len(seq_lens),
        req_pool_indices=torch.arange(len(seq_lens), device=pools.device),
        seq_lens=torch.tensor(seq_lens, device=pools.device),
        seq_lens_cpu=torch.tensor(seq_lens),
        seq_lens_sum=sum(seq_lens),
        # Up to 0.5.22 the batch carries these; later the forward context does.
        req_to_token_pool=pools.requests,
        token_to_kv_pool=pools.kv,
        attn_backend=pools.backend,
        **fields,
    )
