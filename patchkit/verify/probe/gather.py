"""Mends what only the CPU path of old releases gets wrong."""

from __future__ import annotations

from typing import Any

import torch

from patchkit.verify.probe.ledger import Ledger
from patchkit.verify.probe.runtime import Rank


def mend_all_gather(rank: Rank, ledger: Ledger) -> None:
    """Make a gather along another axis than the first give that.

    On a CPU 0.4.9 gathers along the first axis whatever it is asked (0.5.3 does not);
    on a GPU it does as it is told, so without this two ranks could not be compared.
    """
    from sglang.srt.distributed import parallel_state

    if rank.size == 1:
        return
    group: Any = parallel_state.get_tp_group()
    one = torch.zeros(1, 1, device=rank.device)
    if group.all_gather(one, dim=-1).shape == (1, rank.size):
        return
    ledger.shim("all_gather: along the axis that it is asked for")
    gather = type(group).all_gather

    def all_gather(
        self: Any, tensor: torch.Tensor, dim: int = -1, *args: Any, **kwargs: Any
    ) -> Any:
        found = gather(self, tensor, dim, *args, **kwargs)
        stacked = (self.world_size * tensor.shape[0], *tensor.shape[1:])
        if dim % tensor.dim() == 0 or tuple(getattr(found, "shape", ())) != stacked:
            return found
        parts = found.view(self.world_size, *tensor.shape).unbind(0)
        return torch.cat(parts, dim=dim)

    type(group).all_gather = all_gather
    ledger.shim("parallel_state: all_gather along the axis that is asked for")
