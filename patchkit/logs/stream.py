"""Blocks of bytes -> records, in constant memory, however the bytes are split.

A record's text reaches from its mark to the next line end (LF or CR, as progress bars
have it), the next mark, or ``LONGEST`` bytes, whichever comes first. It counts only if
a line end closed it: what is mixed with another line, or cut by the end of the file,
may have lost the end of a number. All else in a log is skipped without a look.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from patchkit.logs.record import Note, Record, Where
from patchkit.logs.values import Bad
from patchkit.logs.words import LONGEST, MARK, PREFIX, Words

_END = re.compile(rb"[\r\n]")
#: Bad lines that are kept by number; all are counted.
_SHOWN = 20


@dataclass
class Counts:
    """What a file held."""

    bytes: int = 0
    lines: int = 0
    records: int = 0
    notes: int = 0
    bad: int = 0
    first_bad: list[tuple[Where, str]] = field(default_factory=list)


class Stream:
    """Cuts one file. ``feed`` its blocks, then ``close``."""

    def __init__(self, file: str, *, json_lines: bool) -> None:
        self.counts = Counts()
        self.words = Words(file)
        self.json_lines = json_lines
        self._rest = b""
        #: 1-based number of the line at which ``_rest`` begins
        self._line = 1
        #: so much of ``_rest`` has been searched for marks
        self._looked = 0
        self._skipping = False

    def feed(self, block: bytes) -> list[Record | Note]:
        """The records that ``block`` completes."""
        self.counts.bytes += len(block)
        data = self._rest + block if self._rest else block
        found: list[Record | Note] = []
        (self._feed_json if self.json_lines else self._feed_log)(data, found)
        return self._counted(found)

    def close(self) -> list[Record | Note]:
        """What the end of the file completes: a JSON line without a line end."""
        found: list[Record | Note] = []
        rest, self._rest = self._rest, b""
        if self.json_lines:
            if rest.strip() and not self._skipping:
                self._take_json(rest, found)
        else:
            at = rest.find(MARK, self._looked)
            if at >= 0:
                line = self._line + rest.count(b"\n", 0, at)
                self._bad(line, "cut by the end of the file")
        return self._counted(found)

    # -- logs ---------------------------------------------------------------------

    def _feed_log(self, data: bytes, found: list[Record | Note]) -> None:
        size, line, counted = len(data), self._line, 0
        looked = self._looked
        keep = max(size - PREFIX - len(MARK) + 1, 0)
        while (at := data.find(MARK, looked)) >= 0:
            begin = at + len(MARK)
            line += data.count(b"\n", counted, at)
            counted = at
            quick = self.words.usual(data, begin, line)
            if quick is not None:
                record, looked = quick
                found.append(record)
                continue
            closed = _END.search(data, begin, begin + LONGEST)
            end = closed.start() if closed else begin + LONGEST
            following = data.find(MARK, begin, end)
            if closed is None and following < 0 and size < end:
                keep = min(keep, max(at - PREFIX, 0))
                break
            looked = begin
            if following >= 0:
                self._bad(line, "another record begins in the middle of it")
            elif closed is None:
                self._bad(line, f"longer than {LONGEST} bytes")
            else:
                looked = end
                self.words.prefix(data, at)
                try:
                    text = data[begin:end].rstrip(b" ")
                    found.append(self.words.log(text, line))
                except Bad as problem:
                    self._bad(line, str(problem))
        line += data.count(b"\n", counted)
        self.counts.lines = line - 1
        self._looked = max(looked - keep, 0)
        self._rest = data[keep:]
        self._line = line - self._rest.count(b"\n")

    # -- JSON lines -----------------------------------------------------------------

    def _feed_json(self, data: bytes, found: list[Record | Note]) -> None:
        last = data.rfind(b"\n")
        if last >= 0:
            for text in data[:last].split(b"\n"):
                if self._skipping:
                    self._skipping = False
                elif text.strip() or len(text) > LONGEST:
                    self._take_json(text, found)
                self._line += 1
            self.counts.lines = self._line - 1
        rest = data[last + 1 :]
        if len(rest) > LONGEST and not self._skipping:
            self._bad(self._line, f"longer than {LONGEST} bytes")
            self._skipping = True
        self._rest = b"" if self._skipping else rest

    def _take_json(self, text: bytes, found: list[Record | Note]) -> None:
        try:
            if len(text) > LONGEST:
                raise Bad(f"longer than {LONGEST} bytes")
            quick = self.words.usual_json(text, self._line)
            found.append(quick or self.words.json(text, self._line))
        except Bad as problem:
            self._bad(self._line, str(problem))

    # -- both -----------------------------------------------------------------------

    def _counted(self, found: list[Record | Note]) -> list[Record | Note]:
        records = sum(isinstance(one, Record) for one in found)
        self.counts.records += records
        self.counts.notes += len(found) - records
        return found

    def _bad(self, line: int, why: str) -> None:
        self.counts.bad += 1
        if len(self.counts.first_bad) < _SHOWN:
            self.counts.first_bad.append((Where(self.words.file, line), why))
