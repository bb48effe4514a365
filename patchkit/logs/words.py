"""The text of one record -> a Record. Raises Bad for what is none.

A regular expression knows the order in which the taps write, and splits a record into
what is new in it and what many records share; the latter is taken apart once. What it
does not match is taken apart word by word. Both give the same, which a test says.
"""

from __future__ import annotations

import json
import re
from typing import Any

from patchkit.logs.record import About, Note, Record
from patchkit.logs.values import (
    Bad,
    check_json,
    is_whole,
    no_number,
    read_name,
    read_numbers,
    read_prefix,
    read_words,
)

MARK = b"EAGLE3_DEBUG["
#: Bytes of a record's text, or of a JSON line, at most: what is longer is none.
LONGEST = 1 << 16
#: Bytes in front of the mark in which a log prefix is looked for.
PREFIX = 64

_NUMBER = rb"([-+.0-9e]{1,32})"
#: site and rank, step, layer to dtype, norm, mean, absmax, nonfinite, rows, least and
#: greatest row norm, fields, segments, fields
_LOG = re.compile(
    rb"([^\[\] \r\n]+\] rank=\d{1,9}) step=(\d{1,18})((?: layer=[^ \r\n]+)?"
    rb" shape=[^ \r\n]+ dtype=[^ \r\n]+) norm=" + _NUMBER + rb" mean=" + _NUMBER
    + rb" absmax=" + _NUMBER + rb" nonfinite=(\d{1,18})"
    rb"(?: rows=(\d{1,18})(?:/\d{1,18})?)?"
    rb"(?: row_norm_min=" + _NUMBER + rb" row_norm_max=" + _NUMBER + rb")?"
    rb"([^\r\n]*)[\r\n]"
)  # fmt: skip
_JSON = re.compile(
    rb"(\{\"site\": \"[^\"\\\n]+\", \"model\": [^,\n]+, \"rank\": \d{1,9}, )"
    rb"\"step\": (\d{1,18})(, \"shape\": \[[^\]\n]*\], \"dtype\": \"[^\"\\\n]+\")"
    rb", \"norm\": " + _NUMBER + rb", \"mean\": " + _NUMBER + rb", \"absmax\": "
    + _NUMBER + rb", \"nonfinite\": (\d{1,18})(?:, \"rows\": (\d{1,18}))?"
    rb"(?:, \"row_norm_min\": " + _NUMBER + rb", \"row_norm_max\": " + _NUMBER + rb")?"
    rb", \"time\": " + _NUMBER + rb"([^\n]*?)(?:, \"gpu_time\": [-+.0-9e]{1,32})?\}"
)  # fmt: skip
_SEGMENTS = re.compile(rb" segments=([^ ]*)")
_JSON_SEGMENTS = re.compile(rb", \"segment_norms\": \[([-+.0-9e, ]*)\]")
_LOST = re.compile(r"lost (\d{1,18}) records")
#: What is a record's own, and not shared.
_OWN = frozenset({"step", "norm", "mean", "absmax", "nonfinite", "rows", "row_norm_min",
                  "row_norm_max", "segment_norms", "time", "gpu_time"})  # fmt: skip
_MINUS = ord("-")
#: So many different texts are remembered; then all are forgotten.
_REMEMBERED = 4096


class Words:
    """Parses the records of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        #: what is shared, as text -> taken apart, and its rows
        self._known: dict[tuple[Any, ...], tuple[About, int | None]] = {}
        self._prefixes: dict[bytes, tuple[float | None, int | None]] = {}
        # of the prefix in front of the record that is being read
        self._time: float | None = None
        self._group: int | None = None

    def usual(self, data: bytes, begin: int, line: int) -> tuple[Record, int] | None:
        """The record that begins behind a mark, at ``begin``, and where it ends.

        None: not in the usual order, or not closed by a line end; ``log`` knows.
        """
        match = _LOG.match(data, begin, begin + LONGEST)
        if match is None:
            return None
        (head, step, middle, norm, mean, absmax, nonfinite, rows, low, high,
         rest) = match.groups()  # fmt: skip
        segments = None
        if b" segments=" in rest and (found := _SEGMENTS.search(rest)):
            segments = found[1]
            rest = rest[: found.start()] + rest[found.end() :]
        self.prefix(data, begin - len(MARK))
        try:
            about, every = self._known[head, middle, rest, self._group]
        except KeyError:
            try:
                about = self._about_log(head, middle, rest)
            except Bad:
                return None
            every = about.rows
            self._remember((head, middle, rest, self._group), about, every)
        record = self._quick(
            about, step, norm, mean, absmax, nonfinite,
            every if rows is None else int(rows), low, high, segments, self._time, line,
        )  # fmt: skip
        return None if record is None else (record, match.end() - 1)

    def usual_json(self, text: bytes, line: int) -> Record | None:
        """The record of a JSON line; None: not in the usual order, ``json`` knows."""
        match = _JSON.fullmatch(text)
        if match is None:
            return None
        (head, step, middle, norm, mean, absmax, nonfinite, rows, low, high, time,
         rest) = match.groups()  # fmt: skip
        segments = None
        if b'"segment_norms"' in rest:
            found = _JSON_SEGMENTS.search(rest)
            if found is None:
                return None
            segments = found[1].replace(b", ", b"+")
            rest = rest[: found.start()] + rest[found.end() :]
        at = rest.rfind(b', "gpu_time": ')
        if at >= 0 and b"," not in rest[at + 1 :]:
            rest = rest[:at]
        try:
            about, every = self._known[head, middle, rest]
        except KeyError:
            try:
                about = self._about_json(head, middle, rest)
            except Bad:
                return None
            every = about.rows
            self._remember((head, middle, rest), about, every)
        try:
            when = float(time)
        except ValueError:
            return None
        if when - when:
            return None
        return self._quick(
            about, step, norm, mean, absmax, nonfinite,
            every if rows is None else int(rows), low, high, segments, when, line,
        )  # fmt: skip

    def _quick(
        self,
        about: About,
        step: bytes,
        norm: bytes,
        mean: bytes,
        absmax: bytes,
        nonfinite: bytes,
        rows: int | None,
        low: bytes | None,
        high: bytes | None,
        segments: bytes | None,
        time: float | None,
        line: int,
    ) -> Record | None:
        """None where a number is none, or may be infinite: the careful way tells."""
        try:
            a, b, c = float(norm), float(mean), float(absmax)
            least = greatest = None
            total = a + b + c
            if low is not None and high is not None:
                least, greatest = float(low), float(high)
                total += least + greatest
            number = int(step)
            norms = None if segments is None else read_numbers(segments)
        except ValueError:
            return None
        if total - total or number < 1 or norm[0] == _MINUS or absmax[0] == _MINUS:
            return None
        return Record(
            about, number, a, b, c, int(nonfinite), rows, least, greatest, norms, time,
            line,
        )  # fmt: skip

    def _remember(self, key: tuple[Any, ...], about: About, every: int | None) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key] = (about, every)

    def _about_log(self, head: bytes, middle: bytes, rest: bytes) -> About:
        """``x.aux] rank=0``, `` layer=2 shape=8x64 dtype=fp32``, `` mode=DECODE``"""
        if MARK in rest or (rest and not rest.startswith(b" ")):
            raise Bad("cut")
        site, _, rank = head.partition(b"] ")
        values = read_words(rank + middle + rest.rstrip(b" "))
        return self._about(read_name(site), values)

    def _about_json(self, head: bytes, middle: bytes, rest: bytes) -> About:
        values = self._values(head + b'"step": 1' + middle + rest + b"}")
        del values["step"]
        if "event" in values:
            raise Bad("no tensor")
        return self._about(values.pop("site"), values)

    def _about(self, site: str, values: dict[str, Any]) -> About:
        """Takes from ``values`` what it knows; the rest are its fields."""
        rank = values.pop("rank", None)
        if rank is None or rank < 0:
            raise Bad("no rank")
        if not _OWN.isdisjoint(values):
            raise Bad("not in the usual order")
        take = values.pop
        layer, shape, dtype = (
            take("layer", None),
            take("shape", None),
            take("dtype", None),
        )
        return About(
            *(self.file, site, take("model", None), rank, layer, shape, dtype),
            *(self._group, values),
        )

    def log(self, text: bytes, line: int) -> Record | Note:
        """``text``: behind the mark, up to the end of the line."""
        head, bracket, rest = text.partition(b"]")
        site = read_name(head)
        if not bracket or not rest.startswith(b" ") or not rest.strip():
            raise Bad("cut")
        rest = rest[1:]
        if b" rank=" not in b" " + rest and not b"rank=".startswith(rest[:5]):
            return self._note(site, rest.decode("utf-8", "replace"), line)
        values = read_words(rest)
        if "nonfinite" not in values and "stats" not in values:
            raise Bad("cut in front of nonfinite=")
        return self._record(site, values, line, self._time)

    def json(self, text: bytes, line: int) -> Record | Note:
        values = self._values(text)
        if "event" in values:
            return self._event(values, line)
        site, time = values.pop("site"), values.pop("time", None)
        values.pop("gpu_time", None)
        return self._record(site, values, line, time)

    @staticmethod
    def _values(text: bytes) -> dict[str, Any]:
        try:
            values = json.loads(text, parse_constant=no_number)
        except (ValueError, RecursionError):
            raise Bad("no JSON") from None
        if not isinstance(values, dict) or not isinstance(values.get("site"), str):
            raise Bad("no record")
        check_json(values)
        return values

    def _record(
        self, site: str, values: dict[str, Any], line: int, time: float | None
    ) -> Record:
        take = values.pop
        step, rows, segments = (
            take(name, None) for name in ("step", "rows", "segment_norms")
        )
        numbers = [
            take(name, None)
            for name in ("norm", "mean", "absmax", "nonfinite", "row_norm_min",
                         "row_norm_max")
        ]  # fmt: skip
        if step is None or step < 1:
            raise Bad("no step")
        about = self._about(site, values)
        norm, mean, absmax, nonfinite, low, high = numbers
        if rows is None:
            rows = about.rows
        if any(one is not None and one < 0 for one in (norm, absmax, nonfinite, rows)):
            raise Bad("a negative norm or count")
        if not segments or None in segments:
            segments = None
        return Record(
            *(about, step, norm, mean, absmax, nonfinite, rows, low, high, segments),
            *(time, line),
        )

    def _note(self, site: str, text: str, line: int) -> Note:
        lost = _LOST.match(text)
        if lost:
            return Note(site, "lost", text, self.file, line, int(lost[1]))
        for start, event in (("tap failed", "failed"), ("inside a ", "captured")):
            if text.startswith(start):
                return Note(site, event, text, self.file, line)
        return Note(site, "said", text, self.file, line)

    def _event(self, values: dict[str, Any], line: int) -> Note:
        count = values.get("count", 0)
        if not isinstance(values["event"], str) or not is_whole(count):
            raise Bad("no event")
        return Note(
            *(values["site"], values["event"], "", self.file, line, count),
            *(values.get("rank"), values),
        )

    def prefix(self, data: bytes, end: int) -> None:
        """Remember what ``[2026-01-01 00:00:00 DP0 TP3] `` in front of ``end`` says."""
        begin = data.rfind(b"[20", end - PREFIX if end > PREFIX else 0, end)
        text = data[begin:end] if begin >= 0 else b""
        known = self._prefixes.get(text)
        if known is None:
            if len(self._prefixes) >= _REMEMBERED:
                self._prefixes.clear()
            known = self._prefixes[text] = read_prefix(text)
        self._time, self._group = known
