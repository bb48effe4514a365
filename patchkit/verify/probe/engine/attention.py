"""The batches of speculative decoding, which SGLang's torch_native backend knows not.

Verify and draft extend are extends whose lengths stand elsewhere; the i-th decode step
of a draft sees i tokens more than the request has. So the numbers are put where the
backend looks for them, and its own attention runs. Methods are replaced on the class,
which others have imported by name already.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch

_LENGTHS = ("seq_lens", "extend_prefix_lens", "extend_seq_lens")


def mend_backend(module: types.ModuleType) -> None:
    """Teach ``TorchNativeAttnBackend`` those batches; add a backend for draft steps."""
    backend: Any = module.TorchNativeAttnBackend
    extend, decode = backend.forward_extend, backend.forward_decode

    def forward_extend(
        self: Any, q: Any, k: Any, v: Any, layer: Any, batch: Any, *rest: Any, **_: Any
    ) -> Any:
        with _with_lengths(batch, _lengths(batch)):
            return extend(self, q, k, v, layer, batch, *_saving(rest, _))

    def forward_decode(
        self: Any, q: Any, k: Any, v: Any, layer: Any, batch: Any, *rest: Any, **_: Any
    ) -> Any:
        more = getattr(self, "draft_step", 0)
        lengths = {"seq_lens": batch.seq_lens + more} if more else {}
        with _with_lengths(batch, lengths):
            return decode(self, q, k, v, layer, batch, *_saving(rest, _))

    backend.forward_extend = forward_extend
    backend.forward_decode = forward_decode
    backend.update_verify_buffers_to_fill_after_draft = lambda self, info, size: None
    backend.get_verify_buffers_to_fill_after_draft = lambda self: [None, None]

    class DraftSteps:
        """One backend for each step of the draft but the last."""

        def __init__(self, runner: Any, topk: int, steps: int) -> None:
            self.attn_backends = [backend(runner) for _ in range(max(steps - 1, 1))]
            for index, one in enumerate(self.attn_backends):
                one.draft_step = index + 1

        def init_forward_metadata(self, batch: Any) -> None:
            pass

    vars(module)["TorchNativeMultiStepDraftBackend"] = DraftSteps


def mend_factory(module: types.ModuleType) -> None:
    """Let ``DraftBackendFactory`` make them: it has no entry for torch_native."""
    factory: Any = module.DraftBackendFactory

    def steps(self: Any) -> Any:
        return _native().TorchNativeMultiStepDraftBackend(
            self.draft_model_runner, self.topk, self.speculative_num_steps
        )

    def one(self: Any) -> Any:
        return _native().TorchNativeAttnBackend(self.draft_model_runner)

    create: Any = getattr(factory, "_create_backend", None)
    if create is None or "stamps_children" not in signature(create).parameters:
        factory.create_decode_backend = lambda self: (
            steps(self) if self.speculative_num_steps > 1 else None
        )
        factory.create_draft_extend_backend = one
        return

    # from 0.5.18 on entries are functions that give a stamp and a backend
    def _create_backend(
        self: Any, name: str, entries: Any, message: str, **named: Any
    ) -> Any:
        made = steps if named.get("stamps_children") else one
        ours = {"torch_native": lambda: ("torch_native", made(self))}
        return create(self, name, {**entries, **ours}, message, **named)

    factory._create_backend = _create_backend


def mend_latent(module: types.ModuleType) -> None:
    """Send torch_native through MLA absorption, the only way that it can serve."""
    registry: Any = getattr(module, "AttentionBackendRegistry", None)
    if registry is not None and registry._handlers.get("torch_native") is None:
        methods: Any = vars(module)["AttnForwardMethod"]
        registry.register("torch_native", lambda *_: methods.MLA)


def _native() -> Any:
    from sglang.srt.layers.attention import torch_native_backend

    return torch_native_backend


def _saving(rest: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """``save_kv_cache``; of newer releases' other arguments the backend knows none."""
    return rest[:1] or (named.get("save_kv_cache", True),)


@contextmanager
def _with_lengths(batch: Any, lengths: dict[str, Any]) -> Iterator[None]:
    kept = {name: getattr(batch, name) for name in lengths}
    for name, value in lengths.items():
        setattr(batch, name, value)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(batch, name, value)


def _lengths(batch: Any) -> dict[str, Any]:
    """Of a verify or a draft extend; empty for any other batch."""
    mode, known = batch.forward_mode, batch.seq_lens
    if mode.is_target_verify():
        count = batch.spec_info.draft_token_num
        values = known + count, known, torch.full_like(known, count)
        return dict(zip(_LENGTHS, values))
    names = ("is_draft_extend_v2", "is_draft_extend")
    if not any(getattr(mode, name, lambda: False)() for name in names):
        return {}
    told = batch.extend_seq_lens
    told = batch.spec_info.accept_length if told is None else told
    each = torch.as_tensor(told, dtype=known.dtype)
    return dict(zip(_LENGTHS, (known, known - each, each)))
