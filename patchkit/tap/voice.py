# patchkit: tap
"""Turns records into lines, quickly: what is the same each time is made once.

The reader shares the interpreter with the server, so each microsecond counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from . import emit
from .calls import Call
from .ring import Record
from .statistics import RowStatistics

# Stands for a value until there is one; in JSON text it is escaped.
_MARK = "\x01"
_IN_LINE = re.compile(f"{_MARK}(\\w+){_MARK}")
_IN_JSON = re.compile(r'"\\u0001(\w+)\\u0001"')


class Voice:
    """Of one call, one segment of it (or all, joined) and one number of rows."""

    def __init__(self, call: Call, segment: int, total: int, *, timed: bool) -> None:
        known = call.shape[:1] != (None,)
        shape: Any = call.shape if known else (total, *call.shape[1:])
        subject = SimpleNamespace(shape=shape, dtype=call.dtype)
        self._width = call.width
        self._total = math.prod(shape[:-1])
        self._joined = call.joined
        names = RowStatistics.__dataclass_fields__
        marks: dict[str, Any] = {name: _mark(name) for name in names}
        statistics = RowStatistics(**marks) if call.supported else None
        step: Any = _mark("step")
        when: Any = _mark("when")
        fields: dict[str, object] = {}
        if call.layers:
            fields["layer"] = call.layers[segment]
        fields |= call.fields
        if call.joined:
            fields["segment_norms"] = _mark("norms")
        for key, value in (("mode", call.mode), ("batch", call.batch)):
            if value is not None:
                fields[key] = value
        fields["captured"] = int(call.captured)
        line = emit.line(call.rank, step, subject, statistics, fields)
        line = line.replace(f"{_mark('rows')}/{self._total}", _mark("counted"))
        self._line = _IN_LINE.sub(r"%(\1)s", line.replace("%", "%%"))
        if timed:
            fields["gpu_time"] = _mark("gpu_time")
        values = (call.site, call.model, call.rank, step, subject, statistics, fields)
        text = emit.record(*values, when=when).decode("ascii")
        self._json = _IN_JSON.sub(r"%(\1)s", text.replace("%", "%%"))

    def speak(
        self, records: Sequence[Record], gpu: float | None, when: float, *, json: bool
    ) -> tuple[str, bytes]:
        """A log line, and a JSON line if asked for."""
        one = records[0]
        rows = one.rows
        elements = rows * self._width * len(records)
        if self._joined:
            norm = math.hypot(*[part.norm for part in records])
            absmax = max(part.absmax for part in records)
            nonfinite = sum(part.nonfinite for part in records)
            share = math.fsum(part.share for part in records) / len(records)
            least = min(part.least for part in records)
            greatest = max(part.greatest for part in records)
        else:
            norm, absmax, nonfinite = one.norm, one.absmax, one.nonfinite
            share, least, greatest = one.share, one.least, one.greatest
        mean = share * elements / max(elements - nonfinite, 1)
        line = self._line % {
            "step": one.step,
            "norm": f"{norm:.6g}",
            "mean": f"{mean:.6g}",
            "absmax": f"{absmax:.6g}",
            "nonfinite": nonfinite,
            "counted": rows if rows == self._total else f"{rows}/{self._total}",
            "row_norm_min": f"{least:.6g}",
            "row_norm_max": f"{greatest:.6g}",
            "norms": "+".join([f"{part.norm:.6g}" for part in records]),
        }
        if not json:
            return line, b""
        text = self._json % {
            "step": one.step,
            "norm": _number(norm),
            "mean": _number(mean),
            "absmax": _number(absmax),
            "nonfinite": nonfinite,
            "rows": rows,
            "row_norm_min": _number(least),
            "row_norm_max": _number(greatest),
            "norms": "[" + ", ".join([_number(part.norm) for part in records]) + "]",
            "when": f"{when:.6f}",
            "gpu_time": "null" if gpu is None else f"{gpu:.6f}",
        }
        return line, text.encode("ascii")


def _mark(name: str) -> str:
    return f"{_MARK}{name}{_MARK}"


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else "null"
