"""Where each rank is between its start and READY, from the events of a log. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from patchkit.watch.events import Arguments, Event, Kind, Stage, read_arguments
from patchkit.watch.ranks import join_ranks, rank_order
from patchkit.watch.spans import DRAFT, SERVER, TARGET, Bar, Span


@dataclass
class Phases:
    """Feed it events in the order of the log."""

    arguments: Arguments | None = None
    began: float | None = None
    #: whether ``began`` is when its process was started, and not of the log
    start_known: bool = False
    last: float = 0.0
    spans: list[Span] = field(default_factory=list)
    bar: Bar | None = None
    scheduling: float | None = None
    http_up: float | None = None
    ready: float | None = None
    batches: int = 0
    stopping: bool = False
    #: whether nothing more will come: what still lasts has ended with the last line
    over: bool = False
    #: lines that tell of progress
    told: int = 0
    _weights: dict[str, int] = field(default_factory=dict)
    _memory: dict[str, int] = field(default_factory=dict)

    def feed(self, event: Event, at: float) -> None:
        if self.began is None and at > 0:
            self.began = at
        self.last = max(self.last, at)
        kind = event.kind
        if kind not in (Kind.ACCESS, Kind.HARMLESS) and event.line.text:
            self.told += 1
        if kind is Kind.ARGUMENTS:
            self.arguments = read_arguments(event.line.text)
        elif kind is Kind.BEGIN and event.stage is not Stage.OTHER:
            self._begin(event, at)
        elif kind is Kind.END and event.stage is not Stage.OTHER:
            self._end(event, at)
        elif kind is Kind.ALLOCATED:
            self._open_memory(event.line.rank, at, at)
        elif kind is Kind.PROGRESS:
            self._progress(event, at)
        elif kind is Kind.SCHEDULING:
            self.scheduling = at
        elif kind is Kind.HTTP_UP:
            self.http_up = at
            self.spans.append(Span(SERVER, Stage.WARMUP, "", "warm-up request", at))
        elif kind is Kind.READY:
            self.ready = at
            self.close_all(at)
        elif kind is Kind.BATCH:
            self.batches += 1
        elif kind is Kind.STOPPING:
            self.stopping = True

    def started(self, at: float) -> None:
        """The server's process was started then, whatever the log says."""
        if self.began is None or at < self.began:
            self.began, self.start_known = at, True

    def answers(self, at: float) -> None:
        """Without a log READY is when it first said that it is well."""
        if self.began is None:
            self.began = at
        if self.ready is None:
            self.ready = self.last = at

    def close_all(self, at: float) -> None:
        for span in self.spans:
            if span.ended is None:
                span.ended = at

    def shift(self, seconds: float) -> None:
        """The clock of the log was found to be off by so much."""
        self.last += seconds
        named = () if self.start_known else ("began",)
        for name in (*named, "scheduling", "http_up", "ready"):
            if getattr(self, name) is not None:
                setattr(self, name, getattr(self, name) + seconds)
        for span in self.spans:
            span.began += seconds
            span.ended = None if span.ended is None else span.ended + seconds
        if self.bar is not None:
            self.bar.began += seconds
            self.bar.at += seconds

    # -- looking ----------------------------------------------------------------------

    @property
    def ranks(self) -> list[str]:
        """Labels of the ranks that spoke, in their order."""
        found = dict.fromkeys(one.rank for one in self.spans if one.rank != SERVER)
        return sorted(found, key=rank_order)

    def where(self, rank: str) -> Span | None:
        """The span that a rank is in, or else was in last."""
        mine = [one for one in self.spans if one.rank == rank]
        opened = [one for one in mine if one.ended is None]
        return (opened or mine or [None])[-1]  # type: ignore[list-item]

    def label(self) -> str:
        """The phase of the server: that of the rank that is furthest behind."""
        if self.ready is not None:
            return "ready"
        if self.http_up is not None:
            return "warm-up"
        if self.scheduling is not None:
            return "scheduler up"
        here = [span for span in map(self.where, self.ranks) if span is not None]
        if not here:
            return Stage.START.value
        behind = min(here, key=self._position)
        return behind.label if behind.ended is None else f"after {behind.label}"

    def place(self, rank: str | None = None) -> str:
        """ "in weights target", "after weights target", "after it was ready": where the
        server is, or a rank."""
        span = self.where(rank) if rank is not None else None
        label = self.label()
        if span is not None and self.http_up is None and self.ready is None:
            label = span.label if span.ended is None else f"after {span.label}"
        if label == "ready":
            return "after it was ready"
        if label == "scheduler up":
            return "after the scheduler was up"
        return label if label.startswith("after ") else f"in {label}"

    def since(self) -> float:
        """When the phase of ``label`` began."""
        for told in (self.ready, self.http_up, self.scheduling):
            if told is not None:
                return told
        here = [span for span in map(self.where, self.ranks) if span is not None]
        if here:
            behind = min(here, key=self._position)
            return behind.began if behind.ended is None else behind.ended
        return self.began or 0.0

    def spread(self) -> str:
        """Which ranks are in which phase, if not all in one: "TP0-2 weights target,
        TP3 after weights target"."""
        places: dict[str, list[str]] = {}
        for rank in self.ranks:
            span = self.where(rank)
            if span is not None:
                label = span.label if span.ended is None else f"after {span.label}"
                places.setdefault(label, []).append(rank)
        if len(places) < 2:
            return ""
        return ", ".join(
            f"{join_ranks(some)} {label}" for label, some in places.items()
        )

    def has_draft(self) -> bool:
        told = self.arguments
        return bool(told and told.algorithm and told.algorithm.upper() != "NGRAM")

    def weights_done(self) -> bool:
        """Whether every rank has loaded every model."""
        if self.scheduling or self.http_up or self.ready:
            return True
        need = 2 if self.has_draft() else 1
        expected = self.arguments.ranks if self.arguments else 1
        ended: dict[str, int] = {}
        for span in self.spans:
            if span.stage is Stage.WEIGHTS and span.ended is not None:
                ended[span.rank] = ended.get(span.rank, 0) + 1
        ready = [rank for rank, count in ended.items() if count >= need]
        return len(ready) >= expected and len(ready) == len(self.ranks)

    def drafting(self) -> bool:
        """Whether a rank has begun to load the draft."""
        return any(count > 1 for count in self._weights.values())

    def graphs_done(self) -> bool:
        """Whether every graph is captured: the scheduler is up only then."""
        return bool(self.scheduling or self.http_up or self.ready)

    def has_graphs(self) -> bool:
        """Whether a rank captured any."""
        return any(one.stage is Stage.GRAPHS for one in self.spans)

    def durations(self, now: float | None = None) -> list[tuple[str, float]]:
        """Seconds of each phase, over all ranks: from its first begin to its last end,
        ``now`` if it lasts; what lies in front of the first is ``start``."""
        if self.began is None:
            return []
        over = now is None or (self.over and self.last)
        now = self.last if over or now is None else now
        found: dict[str, list[float]] = {}
        for span in self.spans:
            end = span.ended if span.ended is not None else now
            edges = found.setdefault(span.label, [span.began, end])
            edges[0], edges[1] = min(edges[0], span.began), max(edges[1], end)
        first = min((one[0] for one in found.values()), default=self.ready or now)
        # the stamp of a first line is of the second in which the process was started
        told = [(Stage.START.value, max(0.0, first - self.began))]
        # nor does a clock that was set back make a phase shorter than nothing
        return told + [
            (name, max(0.0, end - begin)) for name, (begin, end) in found.items()
        ]

    # -- feeding ----------------------------------------------------------------------

    def _begin(self, event: Event, at: float) -> None:
        rank = event.line.rank
        self._close(rank, at)
        if event.stage is Stage.WEIGHTS:
            self._weights[rank] = self._weights.get(rank, 0) + 1
            model = DRAFT if self._weights[rank] > 1 else TARGET
        elif event.stage is Stage.GRAPHS:
            before = [
                one
                for one in self.spans
                if one.rank == rank and one.name == event.name and one.model == TARGET
            ]
            drafting = "draft" in event.name.lower() or bool(before)
            model = DRAFT if drafting else TARGET
        else:
            model = DRAFT if self._weights.get(rank) else TARGET
        if not self.has_draft() and self.arguments is not None:
            model = ""
        self.spans.append(Span(rank, event.stage, model, event.name, at))

    def _end(self, event: Event, at: float) -> None:
        rank = event.line.rank
        if event.stage is Stage.MEMORY:
            span = self.where(rank)
            self._open_memory(rank, at if span is None else span.ended or at, at)
        for span in reversed(self.spans):
            if span.rank == rank and span.stage is event.stage and span.ended is None:
                span.ended = at
                return

    def _open_memory(self, rank: str, began: float, at: float) -> None:
        here = self.where(rank)
        if here is not None and here.ended is None:
            if here.stage is Stage.MEMORY:
                return
            here.ended = at
        nth = self._memory[rank] = self._memory.get(rank, 0) + 1
        model = (DRAFT if nth > 1 else TARGET) if self.has_draft() else ""
        self.spans.append(Span(rank, Stage.MEMORY, model, "KV cache", began))

    def _close(self, rank: str, at: float) -> None:
        for span in self.spans:
            if span.rank == rank and span.ended is None:
                span.ended = at

    def _progress(self, event: Event, at: float) -> None:
        now = self.bar
        name = event.name.partition("(")[0].strip()
        here = [s for s in self.spans if s.stage is event.stage and s.ended is None]
        model = here[-1].model if here else ""
        told = (model, name, event.total)
        same = now is not None and (now.model, now.name, now.total) == told
        if now is not None and same and event.done >= now.done:
            now.done, now.at = event.done, at
        else:
            self.bar = Bar(
                event.stage, model, name, event.done, event.total, at, at, event.done
            )

    def _position(self, span: Span) -> tuple[int, bool]:
        """How far a rank is: spans it has begun, and whether the last has ended."""
        begun = sum(1 for one in self.spans if one.rank == span.rank)
        return begun, span.ended is not None
