"""The ranks' Python stacks, grouped: who waits for whom? Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchkit.watch.ranks import join_ranks, rank_order

#: Names of functions in which a rank waits for the others.
_COLLECTIVE = re.compile(
    r"all_?reduce|all_?gather|broadcast|barrier|reduce_scatter|all_to_all|\brecv\b"
    r"|\bsend\b|gather_object|scatter|rendezvous|init_process_group|_store_based_barrier"
)
#: Innermost frames that are shown.
SHOWN = 8


@dataclass(frozen=True)
class Frame:
    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


#: Frames of the main thread, the innermost first.
Stack = tuple[Frame, ...]


@dataclass(frozen=True)
class Dump:
    """What was learned of one rank. ``why``: why there is no stack."""

    rank: str
    pid: int
    stack: Stack = ()
    how: str = ""
    why: str = ""


@dataclass(frozen=True)
class Group:
    """Ranks with one and the same stack. ``odd``: it differs from the others."""

    ranks: tuple[str, ...]
    stack: Stack
    odd: bool = False

    @property
    def collective(self) -> str:
        """The collective that the ranks are in; "" if none."""
        for frame in self.stack[:6]:
            if _COLLECTIVE.search(frame.function):
                return frame.function
        return ""


def read_pyspy(text: str) -> Stack:
    """From ``py-spy dump --json``. Raises ValueError for anything else."""
    threads = json.loads(text)
    if not isinstance(threads, list) or not threads:
        raise ValueError("no threads")
    # the main thread has the process's own id
    main = [one for one in threads if one.get("os_thread_id") == one.get("pid")]
    named = [one for one in threads if one.get("thread_name") == "MainThread"]
    chosen = (main or named or threads[-1:])[0]
    return tuple(
        Frame(
            one["name"],
            short_file(one.get("filename") or one.get("short_filename") or "?"),
            one.get("line") or 0,
        )
        for one in chosen["frames"]
    )


_FRAME = re.compile(r'  File "(.+)", line (\d+|\?\?\?) in (.+)')
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+")


def read_faulthandler(lines: Sequence[str]) -> Stack:
    """From what ``faulthandler`` prints on a signal; () if it is not there.

    Python runs the handler in the main thread where it can: that is "Current thread",
    and else the last one listed.
    """
    threads: list[tuple[bool, list[Frame]]] = []
    for text in lines:
        head = _THREAD.match(text)
        if head:
            threads.append((head[1] == "Current thread", []))
            continue
        found = _FRAME.match(text)
        if found and threads:
            line = int(found[2]) if found[2].isdigit() else 0
            threads[-1][1].append(Frame(found[3], short_file(found[1]), line))
    current = [frames for is_current, frames in threads if is_current]
    both = current or [frames for _, frames in threads[-1:]]
    return tuple(both[0]) if both else ()


def short_file(path: str) -> str:
    """From the package on: "sglang/srt/managers/scheduler.py"."""
    posix = path.replace("\\", "/")
    for top in ("/site-packages/", "/dist-packages/"):
        if top in posix:
            return posix.rpartition(top)[2]
    found = re.search(r"/(sglang/(?:srt|lang|jit_kernel|kernels)/.*)", posix)
    library = re.search(r"/lib/python3[.\d]*/(.*)", posix)
    if found or library:
        return (found or library)[1]  # type: ignore[index]
    return "/".join(posix.split("/")[-2:])


def group(dumps: Sequence[Dump]) -> tuple[Group, ...]:
    """Equal stacks together, the largest group first; the odd ones marked.

    Where half the ranks wait in a collective, those that do not are the odd ones;
    else a group is odd if it is smaller than the largest.
    """
    found: dict[Stack, list[str]] = {}
    for one in dumps:
        if one.stack:
            found.setdefault(one.stack, []).append(one.rank)
    groups = [
        Group(tuple(sorted(ranks, key=rank_order)), stack)
        for stack, ranks in found.items()
    ]
    if len(groups) < 2:
        return tuple(groups)
    waiting = [one for one in groups if one.collective]
    absent = [one for one in groups if not one.collective]
    if waiting and absent:
        odd = absent
    else:
        most = max(len(one.ranks) for one in groups)
        odd = [one for one in groups if len(one.ranks) < most]
    marked = [Group(one.ranks, one.stack, one in odd) for one in groups]
    return tuple(sorted(marked, key=lambda one: (one.odd, -len(one.ranks))))


def say_odd(groups: Sequence[Group]) -> str:
    """One sentence on which rank differs; "" if none can be told."""
    odd = [one for one in groups if one.odd]
    if not odd:
        return ""
    names = join_ranks([rank for one in odd for rank in one.ranks])
    waiting = [one for one in groups if not one.odd and one.collective]
    inner = odd[0].stack[0]
    if waiting:
        others = join_ranks([rank for one in waiting for rank in one.ranks])
        return (
            f"{names} differs: it is in {inner.function}, not in"
            f" {waiting[0].collective}, in which {others} wait"
            f"{'s' if len(waiting[0].ranks) == 1 and len(waiting) == 1 else ''}"
        )
    return f"{names} differs: it is in {inner}"


def describe(groups: Sequence[Group]) -> list[str]:
    """Lines to show: each group's ranks, then its innermost frames."""
    lines = []
    for one in groups:
        note = "  <- differs" if one.odd else ""
        lines.append(f"{join_ranks(one.ranks)}:{note}")
        lines += [f"    {frame}" for frame in one.stack[:SHOWN]]
        more = len(one.stack) - SHOWN
        if more > 0:
            lines.append(f"    ... {more} frames further out")
    return lines


class Unmoving:
    """Whether every rank has stood at one and the same line since when."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._stacks: Mapping[str, Stack] = {}

    def feed(self, dumps: Sequence[Dump], at: float) -> None:
        stacks = {one.rank: one.stack for one in dumps if one.stack}
        if len(stacks) < len(dumps) or not stacks:
            self.since, self._stacks = None, {}
        elif stacks != self._stacks:
            self.since, self._stacks = at, stacks
