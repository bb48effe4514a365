"""Two runs, joined by step and layer: the first site where they part.

A is kept in memory (its first ``MOST`` records), B is read past it. Norms, largest
magnitudes, non-finite counts and the norms of segments are compared; of tensors that
both runs saved, every element.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from patchkit.errors import PatchkitError
from patchkit.logs.checks import close
from patchkit.logs.files import File, Found, find, read_all
from patchkit.logs.record import Record, Where
from patchkit.logs.saves import NotSaved, Saved, difference, read_saved

#: Between two devices or two kernels, bfloat16 norms differ by less.
TOLERANCE = 1e-2
MOST = 200_000

Key = tuple[str, int | None, str, int, int, int]


@dataclass
class Joined:
    """What became of one site and layer."""

    same: int = 0
    apart: int = 0
    worst: float = 0.0


@dataclass(frozen=True)
class Parting:
    """The first pair that differs, in the order of A."""

    site: str
    layer: int | None
    step: int
    rank: int
    text: str
    here: Where
    there: Where


@dataclass
class Comparison:
    """``alone``: reason -> how many records of A and of B it kept from being joined."""

    names: tuple[str, str]
    tolerance: float
    first: Parting | None = None
    by_site: dict[tuple[str, int | None], Joined] = field(default_factory=dict)
    alone: dict[str, list[int]] = field(default_factory=dict)
    saves: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def joined(self) -> int:
        return sum(one.same + one.apart for one in self.by_site.values())

    @property
    def parted(self) -> bool:
        saves = any(not one["same"] for one in self.saves)
        return self.first is not None or saves or not (self.joined or self.saves)


@dataclass
class _Run:
    found: Found
    counts: list[File] = field(default_factory=list)

    def records(self) -> Iterator[Record]:
        self.counts = [File(one) for one in self.found.files]
        if self.counts:
            for batch in read_all(self.counts):
                yield from (one for one in batch if isinstance(one, Record))


def compare(one: str, other: str, tolerance: float) -> Comparison:
    """Raises PatchkitError (3) where a run can't be read or says nothing."""
    found = Comparison((one, other), tolerance)
    ours, theirs = _Run(find([one])), _Run(find([other]))
    kept: dict[Key, Record] = {}
    order: dict[Key, int] = {}
    keys, left = _Keys(), 0
    for record in ours.records():
        if len(kept) >= MOST:
            left += 1
            continue
        key = keys.of(record)
        kept[key] = record
        order[key] = len(order)
    if left:
        found.notes.append(
            f"only the first {MOST:,} records of {one} were compared, {left:,} not"
        )
    keys = _Keys()
    missing: Counter[str] = Counter()
    first: tuple[int, Parting] | None = None
    said = 0
    for record in theirs.records():
        said += 1
        key = keys.of(record)
        mate = kept.pop(key, None)
        if mate is None:
            missing[_why(record)] += 1
            continue
        text, apart = _differences(mate, record, tolerance)
        if text is None:
            found.alone.setdefault("other rows or no numbers", [0, 0])
            for side in (0, 1):
                found.alone["other rows or no numbers"][side] += 1
            continue
        site = found.by_site.setdefault((record.site, record.layer), Joined())
        site.worst = max(site.worst, apart)
        if not text:
            site.same += 1
            continue
        site.apart += 1
        if first is None or order[key] < first[0]:
            parting = Parting(
                *(record.site, record.layer, record.step, record.rank, text),
                *(mate.where, record.where),
            )
            first = (order[key], parting)
    found.first = first[1] if first else None
    _alone(found, kept, missing)
    _saves(found, ours.found.saves, theirs.found.saves)
    nothing = [not order and not ours.found.saves, not said and not theirs.found.saves]
    if any(nothing):
        empty = one if nothing[0] else other
        raise PatchkitError(
            f"{empty}: no tap spoke in it", hint=f"patchkit logs {empty} says why"
        )
    return found


class _Keys:
    """What a record is joined by. A site that speaks twice in a forward: in order."""

    def __init__(self) -> None:
        self._forwards: dict[tuple[str, int], tuple[int, Counter[Any]]] = {}

    def of(self, record: Record) -> Key:
        model = record.said_model
        step, said = self._forwards.get((model, record.rank), (0, Counter()))
        if step != record.step:
            said = Counter()
            self._forwards[model, record.rank] = (record.step, said)
        what = (record.site, record.layer)
        said[what] += 1
        return (*what, model, record.rank, record.step, said[what])


def _why(record: Record) -> str:
    layer = "" if record.layer is None else f", layer {record.layer}"
    return f"{record.site}{layer}"


def _differences(
    one: Record, other: Record, tolerance: float
) -> tuple[str | None, float]:
    """What differs ("" nothing, None: can't be compared), and by how much at most."""
    if one.width != other.width:
        return f"{one.width} columns, {other.width}", 1.0
    if one.rows != other.rows:
        return None, 0.0
    if one.norm is None or other.norm is None:
        return None, 0.0
    told, worst = [], 0.0
    if one.fields.get("fc") != other.fields.get("fc"):
        told.append(f"fc {one.fields.get('fc')}, {other.fields.get('fc')}")
    if (one.nonfinite or 0) != (other.nonfinite or 0):
        told.append(f"{one.nonfinite} non-finite elements, {other.nonfinite}")
    pairs = [("norm", one.norm, other.norm)]
    if one.absmax is not None and other.absmax is not None:
        pairs.append(("abs max", one.absmax, other.absmax))
    ours, theirs = one.segments or [], other.segments or []
    if len(ours) == len(theirs):
        pairs += [
            (f"norm of state {i}", a, b)
            for i, (a, b) in enumerate(zip(ours, theirs), 1)
        ]
    for name, a, b in pairs:
        apart = abs(a - b) / max(abs(a), abs(b), 1e-30)
        worst = max(worst, apart)
        if not close(a, b, tolerance):
            told.append(f"{name} {a:.6g}, {b:.6g} ({apart:.2%} apart)")
    return "; ".join(told), worst


def _alone(found: Comparison, kept: dict[Key, Record], missing: Counter[str]) -> None:
    for record in kept.values():
        found.alone.setdefault(_why(record), [0, 0])[0] += 1
    for what, count in missing.items():
        found.alone.setdefault(what, [0, 0])[1] += count


def _saves(found: Comparison, ours: list[Any], theirs: list[Any]) -> None:
    kept: dict[Any, Saved] = {}
    for side, paths in enumerate((ours, theirs)):
        seen: Counter[Any] = Counter()
        for path in paths:
            try:
                saved = read_saved(path)
            except (NotSaved, OSError) as problem:
                found.notes.append(str(problem))
                continue
            what = (saved.site, saved.model, saved.rank, saved.step, saved.layer)
            seen[what] += 1
            key = (*what, seen[what])
            if side == 0:
                kept[key] = saved
                continue
            mate = kept.pop(key, None)
            if mate is None:
                found.alone.setdefault("saved tensors", [0, 0])[1] += 1
            else:
                _save(found, mate, saved)
    if kept:
        found.alone.setdefault("saved tensors", [0, 0])[0] += len(kept)


def _save(found: Comparison, one: Saved, other: Saved) -> None:
    if (one.rows, one.columns) != (other.rows, other.columns):
        found.notes.append(
            f"{one.path.name}: {one.rows}x{one.columns}, in the other run"
            f" {other.rows}x{other.columns}"
        )
        return
    try:
        apart = difference(one, other)
    except (NotSaved, OSError) as problem:
        found.notes.append(str(problem))
        return
    value = dataclasses.asdict(apart) | {"site": one.site, "step": one.step}
    value |= {"layer": one.layer, "rank": one.rank, "all_rows": one.rows}
    value["same"] = apart.relative <= found.tolerance
    value["files"] = [str(one.path), str(other.path)]
    found.saves.append(value)
