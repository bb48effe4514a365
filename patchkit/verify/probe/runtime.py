"""What a model runner does before a forward pass, for every release since 0.4.9.

Nothing here compares versions: a function is called with the arguments it knows,
and a module that a release lacks is a step it does not need. sglang is imported
inside the functions, after ``environment`` and ``standins`` have done their part.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from patchkit.verify.probe.ledger import Ledger

SLOTS = 64
REQUESTS = 4
CONTEXT = 128


@dataclass(frozen=True)
class Rank:
    """This process among the tensor-parallel ranks; ``rendezvous`` is a file.

    ``device``: what torch calls the one it runs on. ``kernels``: SGLang's own are used
    there. ``backend``: of the process groups.
    """

    rendezvous: str
    rank: int = 0
    size: int = 1
    device: str = "cpu"
    backend: str = "gloo"
    kernels: bool = False

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.device.partition(":")[0]

    def building(self) -> contextlib.AbstractContextManager[Any]:
        """In it, parameters and buffers are made on the device, as a model loader
        does it; weights are loaded outside."""
        if self.kind == "cpu":
            return contextlib.nullcontext()
        device: contextlib.AbstractContextManager[Any] = torch.device(self.device)
        return device

    def settle(self, model: Any) -> Any:
        """``model``, all of it on the device: SGLang computes its tables of positions
        on the CPU if it sees no other device."""
        return model.eval().to(self.device)


@dataclass(frozen=True)
class Pools:
    """Request and KV cache pools of one model, with the attention backend on them."""

    requests: Any
    kv: Any
    backend: Any
    device: str = "cpu"


def known(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call ``function`` with those arguments that its signature has."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return function(**arguments)
    return function(**{k: v for k, v in arguments.items() if k in parameters})


def optional(module: str) -> Any:
    """Import ``module``, or None if this release has no such module."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module + ".").startswith(error.name + "."):
            return None
        raise


def publish_server_args(rank: Rank) -> Any:
    """Make a ``ServerArgs`` for ``rank`` and put it where the release reads it.

    Up to 0.5.3 a dict ``global_server_args_dict``; then a global; from 0.5.15 a
    runtime context.
    """
    from sglang.srt import server_args as module

    context = optional("sglang.srt.runtime_context")
    if context is None and not _has_dummy_shortcut(module.ServerArgs):
        # Up to 0.5.3 this step reads the model's config from disk or the hub.
        module.ServerArgs.__post_init__ = lambda self: None
    args = known(module.ServerArgs, model_path="dummy", device=rank.kind)
    wanted = {
        "device": rank.kind,
        "attention_backend": "torch_native",
        "prefill_attention_backend": "torch_native",
        "decode_attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "tp_size": rank.size,
        "kv_cache_dtype": "auto",
        "disable_cuda_graph": True,
        "disable_shared_experts_fusion": True,
        "speculative_algorithm": None,
        # From 0.5.5 on: sends the extend of an MLA model through the absorbed path,
        # the only one that torch_native can serve.
        "enable_deterministic_inference": True,
    }
    for name, value in wanted.items():
        if hasattr(args, name):
            setattr(args, name, value)
    if context is not None and hasattr(context, "publish"):
        extra = {}
        if hasattr(context, "SpawnRanks"):
            extra["ranks"] = context.SpawnRanks(world_rank=rank.rank)
        known(context.publish, server_args=args, role="scheduler", **extra)
    elif hasattr(module, "set_global_server_args_for_scheduler"):
        module.set_global_server_args_for_scheduler(args)
    batch = optional("sglang.srt.managers.schedule_batch")
    if hasattr(batch, "global_server_args_dict"):
        batch.global_server_args_dict.update(vars(args))
        moe = optional("sglang.srt.layers.moe.utils")
        if hasattr(moe, "MoeA2ABackend") and not hasattr(moe, "initialize_moe_config"):
            # 0.4.10.post2 alone: an enum that the model runner puts there.
            backend = moe.MoeA2ABackend(args.moe_a2a_backend)
            batch.global_server_args_dict["moe_a2a_backend"] = backend
    return args


def start_distributed(args: Any, rank: Rank, hidden: int, dtype: torch.dtype) -> None:
    """Process groups and SGLang's parallel state for ``rank``."""
    from sglang.srt.distributed import parallel_state
    from sglang.srt.layers import dp_attention

    if rank.backend == "gloo":
        _without_nccl()
    if any(name == "lo" for _, name in socket.if_nameindex()):
        # Gloo else looks the host name up, which fails in many containers.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    known(
        parallel_state.init_distributed_environment,
        backend=rank.backend,
        world_size=rank.size,
        rank=rank.rank,
        local_rank=rank.rank,
        distributed_init_method=f"file://{rank.rendezvous}",
    )
    known(
        parallel_state.initialize_model_parallel,
        tensor_model_parallel_size=rank.size,
        backend=rank.backend,
    )
    model_config = SimpleNamespace(
        hidden_size=hidden, dtype=dtype, hf_config=SimpleNamespace()
    )
    known(
        dp_attention.initialize_dp_attention,
        server_args=args,
        model_config=model_config,
        # 0.4.9 takes these one by one.
        enable_dp_attention=False,
        tp_rank=rank.rank,
        tp_size=rank.size,
        dp_size=1,
        moe_dense_tp_size=None,
        pp_size=1,
    )
    if hasattr(dp_attention, "init_dp_gathered_buffer"):
        dp_attention.init_dp_gathered_buffer(model_config)
    moe = optional("sglang.srt.layers.moe")
    if hasattr(moe, "initialize_moe_config"):
        known(moe.initialize_moe_config, server_args=args)


def _without_nccl() -> None:
    """Let SGLang find no NCCL, which would go past gloo to the devices: a CUDA build of
    torch brings the library, also where there is no device for it."""
    pynccl = optional("sglang.srt.distributed.device_communicators.pynccl")

    def absent(*_: Any) -> None:
        raise OSError("there is no NCCL in this process")

    if hasattr(pynccl, "NCCLLibrary"):
        pynccl.NCCLLibrary = absent


def make_pools(config: Any, dtype: torch.dtype, rank: Rank, heads: int = 1) -> Pools:
    """Pools of ``SLOTS`` tokens: latent (MLA) if ``config`` has a KV rank, else MHA,
    which ``heads`` ranks share."""
    from sglang.srt.layers.attention.torch_native_backend import (
        TorchNativeAttnBackend,
    )
    from sglang.srt.mem_cache import memory_pool

    common = {
        "size": SLOTS,
        "page_size": 1,
        "dtype": dtype,
        "layer_num": config.num_hidden_layers,
        "device": rank.device,
        "enable_memory_saver": False,
    }
    requests = known(
        memory_pool.ReqToTokenPool,
        size=REQUESTS,
        max_context_len=CONTEXT,
        device=rank.device,
        enable_memory_saver=False,
    )
    if getattr(config, "kv_lora_rank", None):
        kv = known(
            memory_pool.MLATokenToKVPool,
            kv_lora_rank=config.kv_lora_rank,
            qk_rope_head_dim=config.qk_rope_head_dim,
            **common,
        )
    else:
        kv = known(
            memory_pool.MHATokenToKVPool,
            head_num=max(1, config.num_key_value_heads // heads),
            head_dim=config.head_dim,
            **common,
        )
    runner = SimpleNamespace(
        device=rank.device, req_to_token_pool=requests, token_to_kv_pool=kv
    )
    return Pools(requests, kv, TorchNativeAttnBackend(runner), rank.device)


def force_absorbed_attention(model: Any, ledger: Ledger) -> None:
    """Send every layer's attention through MLA absorption where it isn't already.

    torch_native can't serve the other ways: they read the latent pool as if it held
    per-head keys. From 0.5.5 on deterministic inference chooses absorption by
    itself; up to 0.5.3 nothing does for an extend.
    """
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.dispatch_attn_forward_method = _absorbed(
            attention.dispatch_attn_forward_method, ledger
        )


def _absorbed(choose: Callable[[Any], Any], ledger: Ledger) -> Callable[[Any], Any]:
    def dispatch(batch: Any) -> Any:
        method = choose(batch)
        if method.name.startswith("MLA"):
            return method
        ledger.shim(f"deepseek_v2: attention by MLA in place of {method.name}")
        return type(method).MLA

    return dispatch


def forward(model: Any, batch: Any, backend: Any) -> Any:
    """One forward pass of ``model`` over ``batch``: a ``LogitsProcessorOutput``."""
    backend.init_forward_metadata(batch)
    context: Any = contextlib.nullcontext()
    module = optional("sglang.srt.model_executor.forward_context")  # 0.5.15 on
    if module is not None:
        context = module.forward_context(module.ForwardContext(attn_backend=backend))
    with torch.no_grad(), context:
        return model.forward(batch.input_ids, batch.positions, batch)


def _has_dummy_shortcut(server_args: Any) -> bool:
    """Whether ``ServerArgs`` stops early for the model path ``dummy`` (0.5.5 on)."""
    if "__post_init__" not in vars(server_args):
        return True
    return '"dummy"' in inspect.getsource(server_args.__post_init__)
