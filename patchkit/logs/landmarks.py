"""What the start of a server's log tells about the server. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: Bytes of a log that are kept to look for landmarks: where servers start.
HEAD = 1 << 21

_ALGORITHM = re.compile(rb"speculative_algorithm=('[^']*'|None)")
_TREE = re.compile(rb"(/[^\s:'\"(),]*/sglang)/srt/")
_LOADED = re.compile(rb"Load weight end\.[^\r\n]* type=(\w+)")
_TAGS = re.compile(rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([^\]\r\n]{1,40})\]")
_RANK = re.compile(rb"TP(\d{1,5})")
_GRAPHS = re.compile(rb"Capture [a-z ]*cuda graph begin", re.IGNORECASE)
_RAISED = re.compile(rb"^(?:\[[^\]\r\n]*\] )?(\w{3,60}Error: [^\r\n]{1,200})", re.M)
_STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


@dataclass
class Landmarks:
    """Of some logs. ``ranks``: TP numbers that logged; empty where DP or PP are too.
    ``raised``: the first exception."""

    server: bool = False
    algorithm: str | None = None
    trees: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    graphs: bool = False
    begins: str | None = None
    raised: str = ""

    def add(self, head: bytes) -> None:
        """Look at the first bytes of one log."""
        self.server = self.server or b"server_args=ServerArgs(" in head
        found = _ALGORITHM.search(head)
        if found:
            self.algorithm = _text(found[1]).strip("'")
        for known, pattern in ((self.trees, _TREE), (self.models, _LOADED)):
            for one in dict.fromkeys(map(_text, pattern.findall(head))):
                if one not in known and len(known) < 8:
                    known.append(one)
        tags = set(_TAGS.findall(head))
        if not any(b"DP" in one or b"PP" in one for one in tags):
            self.ranks |= {int(m[1]) for one in tags if (m := _RANK.search(one))}
        self.graphs = self.graphs or _GRAPHS.search(head) is not None
        raised = _RAISED.search(head)
        if raised and not self.raised:
            self.raised = _text(raised[1])
        stamp = _STAMP.search(head)
        if stamp and self.begins is None:
            self.begins = _text(stamp[1])


def _text(data: bytes) -> str:
    return "".join(
        c if c.isprintable() else "?" for c in data.decode("utf-8", "replace")
    )
