"""The draft's tree and its verification, in plain torch, for a chain (topk 1).

In 0.5.9 SGLang's own function for the second has no branch for a CPU and returns
uninitialised buffers, silently. Every verification is a line of JSON, for whoever
wants to know which tokens were proposed and which were right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Saw = Callable[[list[list[int]], list[list[int]], list[int]], None]


class NotAChain(NotImplementedError):
    """The draft proposes more than one token a step."""


def build_tree(
    parents: Tensor,
    scores: Tensor,
    lengths: Tensor,
    mask: Tensor,
    positions: Tensor,
    index: Tensor,
    following: Tensor,
    sibling: Tensor,
    topk: int,
    depth: int,
    count: int,
    mode: Any = 0,
) -> None:
    """Positions, order and attention mask of ``count`` tokens a request.

    Shapes: ``index``, ``following`` and ``sibling`` [requests, count]; ``mask`` flat,
    for each request [count, length + count], if ``mode`` is that of the whole mask (0).
    """
    if topk != 1:
        raise NotAChain(f"topk {topk}")
    rows, line = lengths.numel(), torch.arange(count)
    positions.copy_((lengths.view(-1, 1) + line).flatten())
    index.copy_(torch.arange(rows * count).view(rows, count))
    after = line + 1
    after[-1] = -1
    following.copy_(after.expand(rows, count))
    sibling.fill_(-1)
    done = 0
    for length in lengths.tolist() if int(mode) == 0 else ():
        seen = torch.ones(count, length + count, dtype=torch.bool)
        seen[:, length:] = torch.tril(torch.ones(count, count, dtype=torch.bool))
        mask[done : done + seen.numel()] = seen.flatten()
        done += seen.numel()


def verify_chain(
    predicts: Tensor,
    accepted: Tensor,
    counts: Tensor,
    candidates: Tensor,
    index: Tensor,
    following: Tensor,
    target: Tensor,
) -> None:
    """A candidate is accepted while the target says the same; then one bonus token.

    ``candidates`` [requests, tokens] begin with the last token that is known;
    ``target`` [requests, tokens] is what the target says after each. Fills ``accepted``
    (where the accepted tokens stand), ``counts`` and ``predicts``.
    """
    told = target.reshape(-1)
    for row in range(candidates.shape[0]):
        last = int(index[row, 0])
        accepted[row, 0] = last
        count, at = 0, int(following[row, 0])
        while at != -1 and count + 1 < accepted.shape[1]:
            if int(candidates[row, at]) != int(told[last]):
                break
            predicts[last] = told[last]
            last = int(index[row, at])
            count += 1
            accepted[row, count] = last
            at = int(following[row, at])
        counts[row] = count
        predicts[last] = told[last]


class Verify:
    """``verify_tree_greedy`` under its names; ``saw`` is told the candidates and the
    target's tokens, a list for each request, and how many were accepted."""

    def __init__(self, saw: Saw) -> None:
        self.saw = saw

    def function(
        self,
        predicts: Tensor,
        accept_index: Tensor,
        accept_token_num: Tensor,
        candidates: Tensor,
        *rest: Tensor,
        target_predict: Tensor | None = None,
        **named: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Releases spell the trees' arguments ``retrive_…`` and ``retrieve_…``."""
        index, following = rest[:2] if rest else (None, None)
        for spelling in ("retrive", "retrieve"):
            if named.get(f"{spelling}_index") is not None:
                index = named[f"{spelling}_index"]
                following = named[f"{spelling}_next_token"]
        if target_predict is None:
            target_predict = rest[3]
        assert index is not None and following is not None
        verify_chain(
            *(predicts, accept_index, accept_token_num, candidates),
            *(index, following, target_predict),
        )
        self.saw(
            candidates.tolist(),
            target_predict.reshape(candidates.shape).tolist(),
            accept_token_num.tolist(),
        )
        return predicts, accept_index, accept_token_num
