"""Single words and values -> Python values. Raises Bad for what is none."""

from __future__ import annotations

import math
import re
from calendar import timegm
from typing import Any, NoReturn

_PREFIX = re.compile(
    rb"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,]\d+)?([^\[\]\r\n]*)\]"
    rb"[^\[\]\r\n]*\Z"
)
_GROUP = re.compile(rb"\bDP(\d{1,6})\b")
_WHOLE = ("rank", "step", "layer", "nonfinite", "batch", "captured", "parts", "partial",
          "in_features", "parts_inferred")  # fmt: skip
_REAL = ("norm", "mean", "absmax", "row_norm_min", "row_norm_max", "time", "gpu_time")
_LISTS = ("segment_norms", "widths")


class Bad(ValueError):
    """Looks like a record and is none: cut, mixed with another line, garbage."""


def read_prefix(text: bytes) -> tuple[float | None, int | None]:
    """Seconds since the epoch, if local time was UTC, and the data-parallel group."""
    found = _PREFIX.match(text)
    if found is None:
        return None, None
    *date, tags = found.groups()
    group = _GROUP.search(tags)
    try:
        when = float(timegm((*map(int, date), 0, 0, 0)))
    except ValueError:  # the 99th month
        when = None
    return when, int(group[1]) if group else None


def read_words(text: bytes) -> dict[str, Any]:
    """``key=value`` words."""
    found: dict[str, Any] = {}
    for word in text.split(b" "):
        key, equals, value = word.partition(b"=")
        if not equals or not key or not value:
            raise Bad("cut or mixed with another line")
        name = read_name(key)
        name = "segment_norms" if name == "segments" else name
        if name in found:
            raise Bad("a word twice")
        found[name] = _value(name, value)
    return found


def read_numbers(text: bytes) -> list[float] | None:
    """``1+2.5e+07``; None if there are none, or one is unknown."""
    numbers = [_real(one) for one in _listed(text)]
    known = [one for one in numbers if one is not None]
    return known if known and len(known) == len(numbers) else None


def _value(name: str, value: bytes) -> Any:
    if name == "rows":
        return _rows(value)
    if name == "shape":
        return _shape(value)
    if value == b"?":
        return None
    if name in _WHOLE:
        return read_whole(value)
    if name in _REAL:
        return _real(value)
    if name in _LISTS:
        if name == "widths":
            return [read_whole(one) for one in _listed(value)]
        return [_real(one) for one in _listed(value)]
    return read_name(value)


def _listed(value: bytes) -> list[bytes]:
    return [] if value == b"none" else _split_list(value)


def _split_list(value: bytes) -> list[bytes]:
    """``1+2.5e+07+3``: a plus after an ``e`` is the exponent's."""
    return re.split(rb"(?<!e)\+", value)


def read_name(value: bytes) -> str:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise Bad("garbage") from None
    if not text or not text.isprintable() or " " in text:
        raise Bad("garbage")
    return text


def _real(value: bytes) -> float | None:
    """A finite number; None for ``?``, and for nan and inf, which mean the same."""
    try:
        number = float(value)
    except ValueError:
        if value == b"?":
            return None
        raise Bad("no number") from None
    if b"_" in value:
        raise Bad("no number")
    return number if math.isfinite(number) else None


def read_whole(value: bytes) -> int | None:
    if value.isdigit() and len(value) < 19:
        return int(value)
    if value == b"?":
        return None
    if value[:1] == b"-" and value[1:].isdigit() and len(value) < 19:
        return int(value)
    raise Bad("no whole number")


def _rows(value: bytes) -> int | None:
    counted, slash, every = value.partition(b"/")
    if slash:
        read_whole(every)
    return read_whole(counted)


def _shape(value: bytes) -> tuple[int, ...] | None:
    if value in (b"?", b"scalar"):
        return None if value == b"?" else ()
    sizes = value.split(b"x")
    if len(sizes) > 16 or not all(one.isdigit() and len(one) < 19 for one in sizes):
        raise Bad("no shape")
    return tuple(map(int, sizes))


def no_number(word: str) -> NoReturn:
    raise Bad(f"{word} is no JSON")


def is_whole(value: object) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
    )


def check_json(values: dict[str, Any]) -> None:
    """The types that the rest relies on. Raises Bad."""
    for name in (*_WHOLE, "rows"):
        if not (values.get(name) is None or is_whole(values[name])):
            raise Bad(f"{name} is no whole number")
    for name in _REAL:
        if values.get(name) is not None:
            values[name] = _json_real(values[name])
    for name in ("shape", "widths"):
        value = values.get(name)
        if name == "widths" and is_whole(value):
            values[name] = value = [value]
        if value is not None and not (
            isinstance(value, list) and all(is_whole(one) and one >= 0 for one in value)
        ):
            raise Bad(f"{name} is no list of whole numbers")
        if name == "shape" and value is not None:
            values[name] = tuple(value)
    norms = values.get("segment_norms")
    if norms is not None:
        if not isinstance(norms, list):
            raise Bad("segment_norms is no list")
        values["segment_norms"] = [
            None if one is None else _json_real(one) for one in norms
        ]
    for name in ("site", "dtype", "model", "mode", "fc"):
        value = values.get(name)
        if value is not None and not (isinstance(value, str) and value.isprintable()):
            raise Bad(f"{name} is no text")


def _json_real(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Bad("no number")
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
