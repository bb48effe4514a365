"""KV pages of several tokens: begun pages are filled, and given back whole."""

from __future__ import annotations

import pytest
import torch
from engine_matrix import VARIANTS, cell, run

from patchkit.verify.probe.engine import index_kernels as kernels


def test_slots_fill_the_begun_page_then_free_ones() -> None:
    start, end = torch.tensor([3, 4]), torch.tensor([6, 9])
    last, free = torch.tensor([11, 19]), torch.tensor([7, 9, 5])
    out = torch.zeros(8, dtype=torch.int64)
    kernels.alloc_extend(start, end, last, free, out, 2, 4, 8)
    assert out.tolist() == [12, 28, 29, 36, 37, 38, 39, 20]
    one = torch.zeros(2, dtype=torch.int64)
    kernels.alloc_decode(torch.tensor([4, 5]), torch.tensor([30, 31]), free, one, 2, 4)
    assert one.tolist() == [31, 28]


def test_a_page_with_an_accepted_token_is_kept() -> None:
    rejected = torch.tensor([[False, True, True, True], [False, False, True, True]])
    kernels.keep_begun_pages(torch.tensor([6, 6]), rejected, 4, 4)
    # positions 6 to 9, pages 4-7 and 8-11: of the first request only 6 is kept
    assert rejected.tolist() == [[False, False, True, True], [False, False, True, True]]


@pytest.mark.engines
@pytest.mark.parametrize("release", ["0.5.5", "0.5.9", "0.5.23"])
def test_pages_change_nothing(release, tmp_path) -> None:
    results, _ = run(release, tmp_path, {"pages": VARIANTS["pages"]})
    assert cell(release, "pages", results["pages"]) == ("4.00+", "")
