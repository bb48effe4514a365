"""Labels of ranks: their order, and many of them in few words. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def rank_order(rank: str) -> tuple[tuple[str, int], ...]:
    """ "DP1 TP10" after "DP1 TP9"."""
    parts = []
    for one in rank.split():
        letters = one.rstrip("0123456789")
        parts.append((letters, int(one[len(letters) :] or 0)))
    return tuple(parts)


def join_ranks(ranks: Iterable[str]) -> str:
    """ "TP0-2, TP5": runs of one letter are drawn together; "rank 0" for no label."""
    ordered = sorted(ranks, key=rank_order)
    found: list[list[str]] = []
    for one in ordered:
        if found and _follows(found[-1][-1], one):
            found[-1].append(one)
        else:
            found.append([one])
    return ", ".join(
        show_rank(some[0])
        if len(some) == 1
        else f"{some[0]}-{some[-1].split()[-1].lstrip('ABCDEFGHIJKLMNOPQRSTUVWXYZ_')}"
        for some in found
    )


def _follows(left: str, right: str) -> bool:
    a, b = rank_order(left), rank_order(right)
    if len(a) != len(b) or not a or a[:-1] != b[:-1]:
        return False
    return a[-1][0] == b[-1][0] and a[-1][1] + 1 == b[-1][1]


def show_rank(rank: str) -> str:
    return rank or "rank 0"
