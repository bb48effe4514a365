"""All-reduce fusion without its kernel: the switch on, the fused call in torch.

On sm90/sm100 with tensor parallelism, SGLang leaves a layer's output unreduced and
lets one kernel of flashinfer all-reduce it, add the residual and norm the sum in
front of the next layer. A state captured in between is a part of the sum only.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from patchkit.verify.probe.runtime import optional

#: Functions that say whether fusion applies (0.5.8 on; the last from 0.5.21 on).
SWITCHES = ("apply_flashinfer_allreduce_fusion", "flashinfer_ar_fusion_applies")
#: Up to 0.5.7: conditions on the machine, in the modules that ask.
FLAGS = ("_is_flashinfer_available", "_is_sm90_supported", "_is_sm100_supported")
#: 0.4.10: the decoder layer decides by itself.
OWN_SWITCH = "_should_fuse_mlp_allreduce_with_next_layer"
KERNEL = "flashinfer_allreduce_residual_rmsnorm"


class Fusion:
    """``calls`` counts the fused calls: an emulation that never engages proves
    nothing."""

    def __init__(self) -> None:
        self.calls = 0
        self.available = False

    def switch_on(self, server_args: Any) -> None:
        """Call it after the models are imported and the server args published."""
        communicator = optional("sglang.srt.layers.communicator")
        kernel = optional("sglang.srt.layers.flashinfer_comm_fusion")
        if not hasattr(kernel, KERNEL):
            return
        setattr(kernel, KERNEL, self.fused)
        modules = [
            module
            for name, module in list(sys.modules.items())
            if name.startswith("sglang.") and module is not None
        ]
        found = False
        for module in modules:
            for name in SWITCHES:
                if name in vars(module):
                    setattr(module, name, lambda rows, *args, **kwargs: True)
                    found = True
        self.available = found or hasattr(communicator, FLAGS[0])
        if self.available and not found:
            # A condition on the server args, too.
            server_args.enable_flashinfer_allreduce_fusion = True
            self._set_flags(communicator)
            model = sys.modules["sglang.srt.models.deepseek_v2"]
            if hasattr(model.DeepseekV2DecoderLayer, OWN_SWITCH):
                self._set_flags(model)
            batch = optional("sglang.srt.managers.schedule_batch")
            known = getattr(batch, "global_server_args_dict", None)
            if known is not None:
                known["enable_flashinfer_allreduce_fusion"] = True
        norms: Any = optional("sglang.srt.layers.layernorm")
        if hasattr(norms, "supports_custom_op"):
            # else a registered operator is called, which we have not replaced
            norms.supports_custom_op = lambda: False

    @staticmethod
    def _set_flags(module: Any) -> None:
        for name in FLAGS:
            if hasattr(module, name):
                setattr(module, name, True)

    def fused(
        self,
        input_tensor: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor,
        eps: float = 1e-6,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The norm of (all-reduced input + residual), and that sum."""
        from sglang.srt.distributed import tensor_model_parallel_all_reduce

        self.calls += 1
        reduced = tensor_model_parallel_all_reduce(input_tensor.clone())
        total = reduced.float() + residual.float()
        scale = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + eps)
        normed = total * scale * weight.float()
        return normed.to(input_tensor.dtype), total.to(input_tensor.dtype)
