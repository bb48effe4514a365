"""What SGLang's small kernels for speculative decoding do, in plain torch: they move
indices about. By name, since their files move between releases.
"""

import torch


def assign_req_to_token_pool(request, table, start, end, where, *rest, **named):
    taken = 0
    for row, first, last in zip(
        request.tolist(), start.tolist(), end.tolist(), strict=True
    ):
        count = last - first
        table[row, first:last] = where[taken : taken + count].to(table.dtype)
        taken += count


def assign_draft_cache_locs(request, table, lengths, extend, pages, where, *rest, **_):
    # older releases have no source, target, cumsum and duplicate arguments
    topk, steps = rest[1:3] if isinstance(rest[0], int) else rest[5:7]
    for index, (row, length) in enumerate(
        zip(request.tolist(), lengths.tolist(), strict=True)
    ):
        count = topk * steps
        some = where[index * count : (index + 1) * count]
        table[row, length : length + count] = some.to(table.dtype)


def create_extend_after_decode_spec_info(
    verified, lengths, accepted, positions, new, *_
):
    done = 0
    for index, (length, count) in enumerate(
        zip(lengths.tolist(), accepted.tolist(), strict=True)
    ):
        positions[done : done + count] = torch.arange(length - count, length)
        done += count
        new[index] = verified[done - 1]


def assign_extend_cache_locs(request, table, start, end, out, *rest, **named):
    done = 0
    for row, first, last in zip(
        request.tolist(), start.tolist(), end.tolist(), strict=True
    ):
        out[done : done + last - first] = table[row, first:last].to(out.dtype)
        done += last - first


def assign_draft_cache_locs_contiguous(
    request, table, lengths, out, width, topk, steps
):
    for index, (row, length) in enumerate(
        zip(request.tolist(), lengths.tolist(), strict=True)
    ):
        count = topk * steps
        some = table[row, length : length + count]
        out[index * count : (index + 1) * count] = some.to(out.dtype)


def fill_bonus_tokens(tokens, lengths, bonus, stride, *rest, **named):
    last = torch.arange(lengths.numel()) * stride + lengths.long() - 1
    bonus.copy_(tokens.reshape(-1)[last].to(bonus.dtype))


def fill_accept_out_cache_loc(index, where, out, *rest, **named):
    chosen = index.reshape(-1)
    chosen = chosen[chosen > -1].long()
    out[: chosen.numel()] = where[chosen].to(out.dtype)


def rotate_input_ids(ids, start, lengths, topk, select=None, *rest, **named):
    for index, (first, count) in enumerate(
        zip(start.tolist(), lengths.tolist(), strict=True)
    ):
        ids[first : first + count - 1] = ids[first + 1 : first + count].clone()
        at = first + count - 1 if select is None else int(select[index])
        ids[at] = topk.reshape(-1)[index]


def gather_rows(index, *pairs, HAS3=False, **named):
    for number in range(0, 12, 3):
        if number < 9 or HAS3:
            source, out = pairs[number], pairs[number + 1]
            out.copy_(source[index.long()].view_as(out))


def build_tree(
    parents, scores, lengths, mask, positions, index, following, sibling, topk, depth,
    count, mode=0,
):  # fmt: skip
    """A chain: topk is 1."""
    rows = lengths.numel()
    line = torch.arange(count)
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


def verify_chain(predicts, accepted, counts, candidates, index, following, sibling,
                 target, *rest, **named):  # fmt: skip
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
    return predicts, accepted, counts


def verify_func(
    predicts=None,
    accept_index=None,
    accept_token_num=None,
    candidates=None,
    retrive_index=None,
    retrive_next_token=None,
    retrive_next_sibling=None,
    target_predict=None,
    topk=-1,
    retrieve_index=None,
    retrieve_next_token=None,
    retrieve_next_sibling=None,
    **named,
):
    def either(left, right):
        return left if left is not None else right

    return verify_chain(
        predicts, accept_index, accept_token_num, candidates,
        either(retrive_index, retrieve_index),
        either(retrive_next_token, retrieve_next_token),
        either(retrive_next_sibling, retrieve_next_sibling),
        target_predict,
    )  # fmt: skip


def extend_locs_func(*, req_pool_indices, req_to_token, start_offset, end_offset,
                     batch_size, draft_token_num, device):  # fmt: skip
    out = torch.empty(batch_size * draft_token_num, dtype=torch.int64)
    assign_extend_cache_locs(
        req_pool_indices, req_to_token, start_offset, end_offset, out
    )
    return out


KERNELS = {
    "assign_req_to_token_pool": assign_req_to_token_pool,
    "assign_draft_cache_locs": assign_draft_cache_locs,
    "create_extend_after_decode_spec_info": create_extend_after_decode_spec_info,
    "assign_extend_cache_locs": assign_extend_cache_locs,
    "assign_draft_cache_locs_page_size_1": assign_draft_cache_locs_contiguous,
    "assign_draft_cache_locs_contiguous": assign_draft_cache_locs_contiguous,
    "fill_new_verified_id": fill_bonus_tokens,
    "fill_bonus_tokens": fill_bonus_tokens,
    "fill_accepted_out_cache_loc": fill_accept_out_cache_loc,
    "fill_accept_out_cache_loc": fill_accept_out_cache_loc,
    "rotate_input_ids_kernel": rotate_input_ids,
    "_gather_rows_kernel": gather_rows,
}
#: names that newer releases take from sgl_kernel on a CPU
COMPILED = {
    "assign_req_to_token_pool_cpu": assign_req_to_token_pool,
    "assign_extend_cache_locs_cpu": assign_extend_cache_locs,
    "assign_draft_cache_locs_contiguous_cpu": assign_draft_cache_locs_contiguous,
    "fill_bonus_tokens_cpu": fill_bonus_tokens,
    "fill_accept_out_cache_loc_cpu": fill_accept_out_cache_loc,
    "rotate_input_ids_cpu": rotate_input_ids,
    "build_tree_kernel_efficient_cpu": build_tree,
    "verify_tree_greedy_cpu": verify_func,
}
