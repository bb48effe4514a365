"""The text of one record -> a Record. Raises Bad for what is none.

A regular expression knows the order in which the taps write; what it does not match is
taken apart word by word. Both give the same, which a test says.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from patchkit.logs.record import NO_PREFIX, Note, Prefix, Record
from patchkit.logs.values import (
    Bad,
    Shape,
    all_rows,
    check_json,
    is_whole,
    no_number,
    read_name,
    read_prefix,
    read_shape_and_dtype,
    read_words,
)

_T = TypeVar("_T")

MARK = b"EAGLE3_DEBUG["
#: Bytes of a record's text, or of a JSON line, at most: what is longer is none.
LONGEST = 1 << 16
#: Bytes in front of the mark in which a log prefix is looked for.
PREFIX = 64

_NUMBER = rb"([-+.0-9e]{1,32})"
_USUAL = re.compile(
    rb"([^\[\] \r\n]+)\] rank=(\d{1,9}) step=(\d{1,18})(?: layer=(\d{1,9}))?"
    rb" shape=([^ \r\n]+ dtype=[^ \r\n]+) norm=" + _NUMBER + rb" mean=" + _NUMBER
    + rb" absmax=" + _NUMBER + rb" nonfinite=(\d{1,18})"
    rb"(?: rows=(\d{1,18})(?:/\d{1,18})?)?"
    rb"(?: row_norm_min=" + _NUMBER + rb" row_norm_max=" + _NUMBER + rb")?"
    rb"([^\r\n]*)[\r\n]"
)  # fmt: skip
_LOST = re.compile(r"lost (\d{1,18}) records")
_KNOWN = frozenset({"site", "rank", "step", "layer", "shape", "dtype", "norm", "mean",
                    "absmax", "nonfinite", "rows", "row_norm_min",
                    "row_norm_max"})  # fmt: skip
_MINUS = ord("-")
#: So many different texts are remembered; then all are forgotten.
_REMEMBERED = 4096


class Words:
    """Parses the records of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        # the few texts that repeat: keys and values of them are shared
        self._shapes: dict[bytes, tuple[Shape, int | None]] = {}
        self._rests: dict[bytes, Mapping[str, Any]] = {}
        self._prefixes: dict[bytes, Prefix] = {}
        self._sites: dict[bytes, str] = {}

    def usual(self, data: bytes, begin: int, line: int) -> tuple[Record, int] | None:
        """The record that begins behind a mark, at ``begin``, and where it ends.

        None: not in the usual order, or not closed by a line end; ``log`` knows.
        """
        match = _USUAL.match(data, begin, begin + LONGEST)
        if match is None:
            return None
        (site, rank, step, layer, shape, norm, mean, absmax, nonfinite, rows, low,
         high, rest) = match.groups()  # fmt: skip
        try:
            name = self._sites[site]
            shown, every = self._shapes[shape]
            fields = self._rests[rest]
            record = Record(
                name,
                fields.get("model"),
                int(rank),
                int(step),
                shown[0],
                shown[1],
                float(norm),
                float(mean),
                float(absmax),
                int(nonfinite),
                None if layer is None else int(layer),
                every if rows is None else int(rows),
                None if low is None else float(low),
                None if high is None else float(high),
                fields,
                line,
                self.file,
                self.prefix(data, begin - len(MARK)),
            )
        except KeyError:
            if MARK in rest:
                return None
            try:
                _remember(self._sites, site, read_name(site))
                shown = read_shape_and_dtype(shape)
                _remember(self._shapes, shape, (shown, all_rows(shown[0])))
                _remember(self._rests, rest, self._rest(rest))
            except Bad:
                return None
            return self.usual(data, begin, line)
        except ValueError:
            return None
        # an infinity (1e999), or only a large sum: log() tells
        if not math.isfinite(
            sum(map(float, filter(None, match.group(6, 7, 8, 11, 12))))
        ):
            return None
        if norm[0] == _MINUS or absmax[0] == _MINUS or record.step < 1:
            return None
        return record, match.end() - 1

    def log(self, text: bytes, line: int, prefix: Prefix) -> Record | Note:
        """``text``: behind the mark, up to the end of the line."""
        head, bracket, rest = text.partition(b"]")
        site = read_name(head)
        if not bracket or not rest.startswith(b" ") or not rest.strip():
            raise Bad("cut")
        rest = rest[1:]
        if b" rank=" not in b" " + rest and not b"rank=".startswith(rest[:5]):
            return self._note(site, rest.decode("utf-8", "replace"), line)
        values = dict(read_words(rest))
        if "nonfinite" not in values and "stats" not in values:
            raise Bad("cut in front of nonfinite=")
        return self._record(site, values, line, prefix)

    def json(self, text: bytes, line: int) -> Record | Note:
        try:
            values = json.loads(text, parse_constant=no_number)
        except (ValueError, RecursionError):
            raise Bad("no JSON") from None
        if not isinstance(values, dict) or not isinstance(values.get("site"), str):
            raise Bad("no record")
        check_json(values)
        if "event" in values:
            return self._event(values, line)
        shape = values.get("shape")
        if shape is not None:
            values["shape"] = tuple(shape)
        return self._record(values.pop("site"), values, line, NO_PREFIX)

    def _record(
        self, site: str, values: dict[str, Any], line: int, prefix: Prefix
    ) -> Record:
        take = values.pop
        rank, step = take("rank", None), take("step", None)
        if rank is None or step is None or rank < 0 or step < 1:
            raise Bad("no rank or step")
        shape, rows = take("shape", None), take("rows", None)
        record = Record(
            site=site,
            model=values.get("model"),
            rank=rank,
            step=step,
            shape=shape,
            dtype=take("dtype", None),
            norm=take("norm", None),
            mean=take("mean", None),
            absmax=take("absmax", None),
            nonfinite=take("nonfinite", None),
            layer=take("layer", None),
            rows=all_rows(shape) if rows is None else rows,
            row_min=take("row_norm_min", None),
            row_max=take("row_norm_max", None),
            fields=values,
            line=line,
            file=self.file,
            prefix=prefix,
        )
        counts = (record.norm, record.absmax, record.nonfinite, record.rows)
        if any(one is not None and one < 0 for one in counts):
            raise Bad("a negative norm or count")
        return record

    def _rest(self, text: bytes) -> Mapping[str, Any]:
        text = text.rstrip(b" ")
        if text and not text.startswith(b" "):
            raise Bad("cut")
        fields = dict(read_words(text[1:])) if text else {}
        if not _KNOWN.isdisjoint(fields):
            raise Bad("not in the usual order")
        return fields

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

    def prefix(self, data: bytes, end: int) -> Prefix:
        """Of ``[2026-01-01 00:00:00 DP0 TP3] `` in front of ``end``."""
        begin = data.rfind(b"[20", max(end - PREFIX, 0), end)
        if begin < 0:
            return NO_PREFIX
        text = data[begin:end]
        known = self._prefixes.get(text)
        if known is None:
            known = _remember(self._prefixes, text, read_prefix(text))
        return known


def _remember(where: dict[bytes, _T], text: bytes, value: _T) -> _T:
    if len(where) >= _REMEMBERED:
        where.clear()
    where[text] = value
    return value
