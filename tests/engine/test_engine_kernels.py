"""What stands in for the kernels of speculative decoding, on small tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from patchkit.verify.probe.engine import index_kernels as kernels  # noqa: E402
from patchkit.verify.probe.engine.tree_kernels import (  # noqa: E402
    NotAChain,
    Verify,
    build_tree,
)


def test_slots_go_into_the_table_and_come_out_of_it() -> None:
    table = torch.zeros(3, 8, dtype=torch.int32)
    request = torch.tensor([2, 0])
    start, end = torch.tensor([1, 3]), torch.tensor([3, 6])
    kernels.assign_req_to_token_pool(
        request, table, start, end, torch.tensor([7, 8, 9, 10, 11]), 8, 2
    )
    assert table[2].tolist() == [0, 7, 8, 0, 0, 0, 0, 0]
    assert table[0].tolist() == [0, 0, 0, 9, 10, 11, 0, 0]
    out = torch.zeros(5, dtype=torch.int64)
    kernels.assign_extend_cache_locs(request, table, start, end, out, 8, 2)
    assert out.tolist() == [7, 8, 9, 10, 11]
    uniform = torch.zeros(4, dtype=torch.int64)
    kernels.assign_extend_cache_locs_uniform(request, table, start, uniform, 8, 2)
    assert uniform.tolist() == [7, 8, 9, 10]


@pytest.mark.parametrize("older", [True, False])
def test_draft_slots_of_both_signatures(older: bool) -> None:
    table = torch.zeros(2, 8, dtype=torch.int32)
    more = () if older else (None,) * 4
    kernels.assign_draft_cache_locs(
        torch.tensor([1, 0]), table, torch.tensor([2, 4]), None, None,
        torch.tensor([5, 6, 7, 8]), *more, 8, 1, 2, 1,
    )  # fmt: skip
    assert table.tolist() == [[0, 0, 0, 0, 7, 8, 0, 0], [0, 0, 5, 6, 0, 0, 0, 0]]
    out = torch.zeros(4, dtype=torch.int64)
    kernels.assign_draft_cache_locs_contiguous(
        torch.tensor([1, 0]), table, torch.tensor([2, 4]), out, 8, 1, 2
    )
    assert out.tolist() == [5, 6, 7, 8]


def test_positions_and_last_tokens_after_a_verification() -> None:
    positions, new = torch.zeros(3, dtype=torch.int64), torch.zeros(2).int()
    kernels.create_extend_after_decode_spec_info(
        torch.tensor([4, 5, 6]), torch.tensor([9, 3]), torch.tensor([2, 1]),
        positions, new, 4,
    )  # fmt: skip
    assert positions.tolist() == [7, 8, 2] and new.tolist() == [5, 6]
    bonus = torch.zeros(2, dtype=torch.int64)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    kernels.fill_bonus_tokens(tokens, torch.tensor([2, 3]), bonus, 3)
    assert bonus.tolist() == [2, 6]
    out = torch.zeros(2, dtype=torch.int64)
    index = torch.tensor([[0, -1], [2, -1]])
    kernels.fill_accept_out_cache_loc(index, torch.tensor([7, 8, 9]), out)
    assert out.tolist() == [7, 9]


def test_input_ids_move_by_one() -> None:
    ids = torch.tensor([1, 2, 3, 4, 5])
    start, lengths = torch.tensor([0, 3]), torch.tensor([3, 2])
    kernels.rotate_input_ids(ids, start, lengths, torch.tensor([[8], [9]]))
    assert ids.tolist() == [2, 3, 8, 5, 9]


def tree(rows: int, count: int) -> tuple[torch.Tensor, ...]:
    lengths = torch.arange(2, 2 + rows)
    mask = torch.zeros(int(count * (lengths + count).sum()), dtype=torch.bool)
    positions = torch.zeros(rows * count, dtype=torch.int64)
    index, following, sibling = (
        torch.zeros(rows, count, dtype=torch.int64) for _ in range(3)
    )
    build_tree(
        *(None, None, lengths, mask, positions),
        *(index, following, sibling, 1, count - 1, count, 0),
    )
    return mask, positions, index, following, sibling


def test_a_chain_is_a_tree() -> None:
    mask, positions, index, following, sibling = tree(2, 3)
    assert positions.tolist() == [2, 3, 4, 3, 4, 5]
    assert index.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert following.tolist() == [[1, 2, -1]] * 2 and set(
        sibling.flatten().tolist()
    ) == {-1}
    assert mask[:15].view(3, 5).int().tolist() == [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]
    with pytest.raises(NotAChain):
        build_tree(*[None] * 8, 2, 3, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("spelling", ["retrive", "retrieve"])
def test_candidates_are_accepted_while_the_target_agrees(spelling: str) -> None:
    _, _, index, following, sibling = tree(3, 3)
    candidates = torch.tensor([[1, 2, 3], [1, 2, 9], [1, 8, 3]])
    target = torch.tensor([[2, 3, 4]] * 3)
    predicts = torch.full((9,), -1)
    accepted = torch.full((3, 3), -1)
    counts = torch.zeros(3, dtype=torch.int64)
    seen = []
    Verify(lambda *told: seen.append(told)).function(
        predicts, accepted, counts, candidates, target_predict=target,
        **{f"{spelling}_index": index, f"{spelling}_next_token": following,
           f"{spelling}_next_sibling": sibling},
    )  # fmt: skip
    assert counts.tolist() == [2, 1, 0]
    assert accepted.tolist() == [[0, 1, 2], [3, 4, -1], [6, -1, -1]]
    assert predicts.tolist() == [2, 3, 4, 2, 3, -1, 2, -1, -1]
    assert seen == [(candidates.tolist(), target.tolist(), [2, 1, 0])]
