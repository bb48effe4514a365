"""From the captured states to the draft, within each rank: what was captured is what is
joined, what is joined is what ``fc`` gets, and ``fc`` runs on it.

A target's forward is followed by one of the draft that takes its states (draft extend,
or the prefill of the draft) and then by the draft's own decode steps, which have one
state and skip ``fc`` rightly. Which is which shows in the order of a rank's records.
That is relied on only where the draft's steps are without gaps: with
``EAGLE3_DEBUG_EVERY``, or after lost records, the next record may belong to another
forward. Where records say their mode, it must be one that extends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from patchkit.logs.checks.fc import Fc
from patchkit.logs.checks.states import States, Taken
from patchkit.logs.finding import Findings
from patchkit.logs.record import Note, Record

#: Joined tensors of a rank that are remembered, to recognise a stale one.
_REMEMBERED = 8
#: Ranks that are followed: garbage can name any number of them.
_RANKS = 4096
#: States of one forward that are kept: a target has fewer layers.
_STATES = 256


@dataclass
class _Rank:
    """The states, and what became of them, of this rank's last forwards."""

    aux: list[Record] = field(default_factory=list)
    #: the last tensor the target joined, until the draft takes it
    pending: Record | None = None
    joined: deque[Record] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    #: the residual stream of the target's forward, in front of each layer
    stream: dict[int, Record] = field(default_factory=dict)
    draft_step: int = 0
    #: what the draft took before, and from what
    before: Taken | None = None
    fc_in: Record | None = None
    taken: Taken | None = None


class Flow:
    def __init__(self, findings: Findings, tolerance: float) -> None:
        self.states = States(findings, tolerance)
        self._fc = Fc(findings, tolerance)
        #: of each process: a rank's JSON lines are a file of their own
        self._ranks: dict[tuple[str, int], _Rank] = {}
        self._drafts: set[str] = set()
        #: some forwards say nothing and don't count as steps
        self._silent = False

    def note(self, note: Note) -> None:
        if note.event == "captured" and "silent" in note.text:
            self._silent = True

    def calls(self, kind: str) -> list[Callable[[Record], None]]:
        """What to call for the records of a site of this kind."""
        calls = {
            "aux": self._aux,
            "layer": self._layer,
            "concat": self._concat,
            "fc_in": self._fc_in,
            "fc_out": self._fc_out,
        }
        return [calls[kind]] if kind in calls else []

    def _rank(self, record: Record) -> _Rank:
        key = (record.about.file, record.about.rank)
        rank = self._ranks.get(key)
        if rank is None:
            rank = _Rank()
            if len(self._ranks) < _RANKS:
                self._ranks[key] = rank
        return rank

    def _aux(self, record: Record) -> None:
        rank = self._rank(record)
        if rank.aux and rank.aux[0].step != record.step:
            rank.aux = []
        if len(rank.aux) < _STATES:
            rank.aux.append(record)
        if rank.stream:
            self.states.captured(record, rank.stream)

    def _layer(self, record: Record) -> None:
        stream = self._rank(record).stream
        if stream and next(iter(stream.values())).step != record.step:
            stream.clear()
        if record.layer is not None and len(stream) < _STATES:
            stream[record.layer] = record

    def _concat(self, record: Record) -> None:
        if self._is_draft(record):
            return
        rank = self._rank(record)
        self._fc.joined(record)
        if rank.aux and rank.aux[0].step == record.step:
            self.states.joined(record, rank.aux)
        rank.pending = record
        rank.joined.append(record)

    def _is_draft(self, record: Record) -> bool:
        """The draft joins what its own next step gets: one state, as a rule."""
        model = record.model
        if model is None:
            return record.fields.get("parts") == 1
        return model in self._drafts or "eagle" in model

    def _fc_in(self, record: Record) -> None:
        rank = self._rank(record)
        if len(self._drafts) < _RANKS:
            self._drafts.add(record.model or record.site.rpartition(".")[0])
        follows = rank.draft_step + 1 == record.step
        pending, rank.pending = rank.pending, None
        rank.draft_step, rank.fc_in, rank.taken = record.step, record, None
        if pending is None or not record.rows:
            return
        if not self._takes_states(record, follows):
            self.states.not_compared += 1
            return
        captured = rank.aux if rank.aux and rank.aux[0].step == pending.step else []
        rank.taken = Taken(record, pending, len(captured))
        self.states.taken(rank.taken, rank.joined, rank.before)
        rank.before = rank.taken

    def _takes_states(self, record: Record, follows: bool) -> bool:
        """Whether this forward of the draft is the one that takes what was joined."""
        mode = record.fields.get("mode")
        if mode is None:
            return follows and not self._silent
        return follows and "EXTEND" in str(mode).upper()

    def _fc_out(self, record: Record) -> None:
        rank = self._rank(record)
        taken, fc_in = rank.taken, rank.fc_in
        rank.taken = rank.fc_in = None
        if fc_in is not None and fc_in.step != record.step:
            taken = fc_in = None
        self._fc.out(record, fc_in, taken)
