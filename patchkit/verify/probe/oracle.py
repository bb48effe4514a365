"""What the taps should have seen, observed by other means than the code they patch.

The residual stream is read in front of each layer's ``input_layernorm``, the fc of
the draft through hooks on the module. No code that a recipe edits takes part, and
statistics are computed in float64 from the tensors themselves.
"""

from __future__ import annotations

from typing import Any

import torch


def statistics(tensor: torch.Tensor) -> dict[str, Any]:
    """Shape, dtype, L2 norm, mean, absolute maximum and non-finite count."""
    values = tensor.detach().double()
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "norm": float(values.pow(2).sum().sqrt()),
        "mean": float(values.mean()),
        "absmax": float(values.abs().max()),
        "nonfinite": int((~torch.isfinite(values)).sum()),
    }


class Oracle:
    """Observes forward passes; ``observations`` are in call order."""

    def __init__(self) -> None:
        self.observations: list[dict[str, Any]] = []
        self.call = ""
        self.fc_calls = 0
        self.rows = 0
        self.streams: dict[int, torch.Tensor] = {}
        self.draft_stream: torch.Tensor | None = None
        self.fc_received: torch.Tensor | None = None
        self.fc_returned: torch.Tensor | None = None
        #: what the draft's layer is given, after the width guard
        self.draft_entering: torch.Tensor | None = None

    def watch_target(self, model: Any) -> None:
        """Keep the stream [tokens, hidden] in front of each layer, by its index."""
        for index, layer in enumerate(model.model.layers):

            def keep(module: Any, args: Any, kwargs: Any, index: int = index) -> None:
                self.streams[index] = _stream(*args, **kwargs)

            layer.input_layernorm.register_forward_pre_hook(keep, with_kwargs=True)

    def watch_draft(self, model: Any) -> None:
        """Observe ``fc`` and the stream in front of the draft's last norm.

        The draft hands that stream, one part wide, to the same LogitsProcessor.
        """

        def fc(module: Any, args: Any, output: torch.Tensor) -> None:
            self.fc_calls += 1
            self.fc_received, self.fc_returned = args[0].clone(), output.clone()
            self.note("llama_eagle3.fc_in", args[0], in_features=module.in_features)
            self.note("llama_eagle3.fc_out", output)

        def keep(module: Any, args: Any, kwargs: Any) -> None:
            self.draft_stream = _stream(*args, **kwargs)

        def enter(module: Any, args: Any) -> None:
            if self.draft_entering is None:
                self.draft_entering = args[0].clone()

        model.model.fc.register_forward_hook(fc)
        for module in model.model.modules():
            # ``midlayer`` up to 0.5.11, then ``layers[0]``
            norm = getattr(module, "hidden_norm", None)
            if isinstance(norm, torch.nn.Module):
                norm.register_forward_pre_hook(enter)
        model.model.norm.register_forward_pre_hook(keep, with_kwargs=True)

    def begin(self, call: str) -> None:
        self.call = call
        self.streams.clear()
        self.draft_stream = None
        self.fc_received = self.fc_returned = self.draft_entering = None

    def note(self, site: str, tensor: torch.Tensor, **more: Any) -> None:
        entry = {"call": self.call, "site": site, **more, **statistics(tensor)}
        self.observations.append(entry)

    def aux_states(self, layers: list[int]) -> torch.Tensor:
        """The streams in front of ``layers``, side by side: [tokens, k * hidden]."""
        return torch.cat([self.streams[layer] for layer in layers], dim=-1)


def _stream(
    x: torch.Tensor, residual: torch.Tensor | None = None, *_: Any, **__: Any
) -> torch.Tensor:
    # A new tensor either way: the norm may work in place.
    return x.clone() if residual is None else x + residual
