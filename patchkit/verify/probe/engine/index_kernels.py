"""What SGLang's small kernels of speculative decoding do, in plain torch.

They move indices about: which KV slots belong to which request, which token of each
request comes next. Known by name, since their files move between releases. Argument
order is the kernels' own; what follows the last one that matters is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor


def _rows(*columns: Tensor) -> Iterator[list[int]]:
    """The requests of a batch, each with its numbers."""
    return map(list, zip(*(one.tolist() for one in columns)))


def assign_req_to_token_pool(
    request: Tensor, table: Tensor, start: Tensor, end: Tensor, where: Tensor, *_: Any
) -> None:
    """Slots ``where`` into ``table[request, start:end]``, one request after another."""
    taken = 0
    for row, first, last in _rows(request, start, end):
        count = last - first
        table[row, first:last] = where[taken : taken + count].to(table.dtype)
        taken += count


def assign_draft_cache_locs(
    request: Tensor,
    table: Tensor,
    lengths: Tensor,
    extend: Tensor,
    pages: Tensor,
    where: Tensor,
    *rest: Any,
    **_: Any,
) -> None:
    """``topk * steps`` slots behind each request's tokens, into ``table``."""
    # older releases have no source, target, cumsum and duplicate arguments
    topk, steps = rest[1:3] if isinstance(rest[0], int) else rest[5:7]
    count = topk * steps
    for index, (row, length) in enumerate(_rows(request, lengths)):
        some = where[index * count : (index + 1) * count]
        table[row, length : length + count] = some.to(table.dtype)


def assign_draft_cache_locs_contiguous(
    request: Tensor,
    table: Tensor,
    lengths: Tensor,
    out: Tensor,
    width: int,
    topk: int,
    steps: int,
) -> None:
    """The same slots, out of ``table``."""
    count = topk * steps
    for index, (row, length) in enumerate(_rows(request, lengths)):
        some = table[row, length : length + count]
        out[index * count : (index + 1) * count] = some.to(out.dtype)


def assign_extend_cache_locs(
    request: Tensor,
    table: Tensor,
    start: Tensor,
    end: Tensor,
    out: Tensor,
    *_: Any,
    **__: Any,
) -> None:
    """Slots ``table[request, start:end]``, one request after another."""
    done = 0
    for row, first, last in _rows(request, start, end):
        out[done : done + last - first] = table[row, first:last].to(out.dtype)
        done += last - first


def assign_extend_cache_locs_uniform(
    request: Tensor,
    table: Tensor,
    start: Tensor,
    out: Tensor,
    width: int,
    count: int,
    *_: Any,
    **__: Any,
) -> None:
    """The same, ``count`` of them for each request."""
    assign_extend_cache_locs(request, table, start, start + count, out)


def extend_cache_locs(
    *,
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    batch_size: int,
    draft_token_num: int,
    **_: Any,
) -> Tensor:
    """``assign_extend_cache_locs_func``, which has no branch for a CPU everywhere."""
    out = torch.empty(batch_size * draft_token_num, dtype=torch.int64)
    assign_extend_cache_locs(
        req_pool_indices, req_to_token, start_offset, end_offset, out
    )
    return out


def create_extend_after_decode_spec_info(
    verified: Tensor,
    lengths: Tensor,
    accepted: Tensor,
    positions: Tensor,
    new: Tensor,
    *_: Any,
) -> None:
    """Positions of the accepted tokens, and the last of each request."""
    done = 0
    for index, (length, count) in enumerate(_rows(lengths, accepted)):
        positions[done : done + count] = torch.arange(length - count, length)
        done += count
        new[index] = verified[done - 1]


def fill_bonus_tokens(
    tokens: Tensor, lengths: Tensor, bonus: Tensor, stride: int, *_: Any, **__: Any
) -> None:
    """The last accepted token of each request; ``tokens`` has ``stride`` a request."""
    last = torch.arange(lengths.numel()) * stride + lengths.long() - 1
    bonus.copy_(tokens.reshape(-1)[last].to(bonus.dtype))


def fill_accept_out_cache_loc(
    index: Tensor, where: Tensor, out: Tensor, *_: Any, **__: Any
) -> None:
    """The slots of the accepted tokens; an ``index`` below 0 is none."""
    chosen = index.reshape(-1)
    chosen = chosen[chosen > -1].long()
    out[: chosen.numel()] = where[chosen].to(out.dtype)


def rotate_input_ids(
    ids: Tensor,
    start: Tensor,
    lengths: Tensor,
    topk: Tensor,
    select: Tensor | None = None,
    *_: Any,
    **__: Any,
) -> None:
    """Each request's tokens one to the left, and the draft's choice in the gap."""
    for index, (first, count) in enumerate(_rows(start, lengths)):
        ids[first : first + count - 1] = ids[first + 1 : first + count].clone()
        at = first + count - 1 if select is None else int(select[index])
        ids[at] = topk.reshape(-1)[index]


def gather_rows(index: Tensor, *groups: Any, HAS3: bool = False, **_: Any) -> None:
    """Rows ``index`` of three or four tensors; a group is source, output, width."""
    for number in range(0, 12 if HAS3 else 9, 3):
        source, out = groups[number], groups[number + 1]
        out.copy_(source[index.long()].view_as(out))


def alloc_extend(
    start: Tensor,
    end: Tensor,
    last: Tensor,
    pages: Tensor,
    out: Tensor,
    _: int,
    page: int,
    *__: Any,
) -> None:
    """Slots for positions ``start`` to ``end`` of each request: first what is left of
    its page, behind slot ``last``, then whole pages from those that are free."""
    made: list[int] = []
    free = iter(pages.tolist())
    for first, stop, slot in _rows(start, end, last):
        for position in range(first, stop):
            slot = slot + 1 if position % page else next(free) * page
            made.append(slot)
    out[: len(made)] = torch.tensor(made, dtype=out.dtype)


def alloc_decode(
    lengths: Tensor,
    last: Tensor,
    pages: Tensor,
    out: Tensor,
    bound: int,
    page: int,
    *_: Any,
) -> None:
    """The slot of each request's last position."""
    alloc_extend(lengths - 1, lengths, last, pages, out, bound, page)


def keep_begun_pages(
    lengths: Tensor, free: Tensor, page: int, width: int, *_: Any
) -> None:
    """Slots of rejected tokens are not given back where an accepted one shares the
    page; ``free`` says which of ``width`` tokens a request were rejected."""
    flat = free.view(-1)
    for index, (length,) in enumerate(_rows(lengths)):
        row = flat[index * width : (index + 1) * width]
        kept = width - int(row.sum())
        begun = (length + kept - 1) // page * page - length
        row[max(begun, 0) : min(begun + page, width)] = False


#: By the name of the Triton kernel.
TRITON: dict[str, Callable[..., Any]] = {
    "assign_req_to_token_pool": assign_req_to_token_pool,
    "assign_draft_cache_locs": assign_draft_cache_locs,
    "create_extend_after_decode_spec_info": create_extend_after_decode_spec_info,
    "assign_extend_cache_locs": assign_extend_cache_locs,
    "assign_extend_cache_locs_uniform": assign_extend_cache_locs_uniform,
    "assign_draft_cache_locs_page_size_1": assign_draft_cache_locs_contiguous,
    "assign_draft_cache_locs_contiguous": assign_draft_cache_locs_contiguous,
    "fill_new_verified_id": fill_bonus_tokens,
    "fill_bonus_tokens": fill_bonus_tokens,
    "fill_accepted_out_cache_loc": fill_accept_out_cache_loc,
    "fill_accept_out_cache_loc": fill_accept_out_cache_loc,
    "rotate_input_ids_kernel": rotate_input_ids,
    "_gather_rows_kernel": gather_rows,
    "alloc_extend_kernel": alloc_extend,
    "alloc_decode_kernel": alloc_decode,
    "align_evict_mask_to_page_size": keep_begun_pages,
}
#: By the name that releases from 0.5.18 on take from ``sgl_kernel`` on a CPU.
COMPILED: dict[str, Callable[..., Any]] = {
    "assign_req_to_token_pool_cpu": assign_req_to_token_pool,
    "assign_extend_cache_locs_cpu": assign_extend_cache_locs,
    "assign_draft_cache_locs_contiguous_cpu": assign_draft_cache_locs_contiguous,
    "fill_bonus_tokens_cpu": fill_bonus_tokens,
    "fill_accept_out_cache_loc_cpu": fill_accept_out_cache_loc,
    "rotate_input_ids_cpu": rotate_input_ids,
}
#: By the name of a function of SGLang's, where it has no branch for a CPU.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "assign_extend_cache_locs_func": extend_cache_locs,
    "assign_req_to_token_pool_func": assign_req_to_token_pool,
}
