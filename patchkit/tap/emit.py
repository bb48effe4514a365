# patchkit: tap
"""One observation -> a log line and, if asked for, a JSON line."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from .statistics import RowStatistics, Statistics

# Below "sglang": the server's own configuration (prefix, level, handlers) applies.
LOGGER = logging.getLogger("sglang.srt.patchkit_tap")

RESERVED = (
    frozenset({"site", "model", "rank", "step", "shape", "dtype", "stats", "time"})
    | frozenset({"mode", "batch", "captured", "gpu_time", "event"})
    | frozenset({"segment_norms", "segments"})
    | RowStatistics.__dataclass_fields__.keys()
)


class Subject(Protocol):
    """A tensor, or what is remembered of one."""

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def dtype(self) -> torch.dtype: ...


def global_rank() -> int:
    """Rank in torch.distributed, before that ``RANK``, else 0."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get("RANK", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def say(site: str, text: str, *, level: int = logging.INFO) -> None:
    """Log one line, at a level at which it is seen."""
    # logging.config.dictConfig disables loggers that it does not name; EAGLE3_DEBUG
    # is the more explicit wish.
    LOGGER.disabled = False
    # With no handler at all, logging prints WARNING and above to stderr.
    if not (LOGGER.isEnabledFor(level) and LOGGER.hasHandlers()):
        level = max(logging.WARNING, LOGGER.getEffectiveLevel())
    LOGGER.log(level, "EAGLE3_DEBUG[%s] %s", word(site), text)


def line(
    rank: int,
    step: int,
    tensor: Subject,
    statistics: Statistics | None,
    fields: Mapping[str, object],
) -> str:
    """``key=value`` words; an unknown value (None) is ``?``."""
    words: dict[str, object] = {"rank": rank, "step": step}
    if "layer" in fields:
        words["layer"] = fields["layer"]
    words["shape"] = "x".join(map(str, tensor.shape)) or "scalar"
    words["dtype"] = _dtype(tensor)
    words |= vars(statistics) if statistics else {"stats": "unsupported"}
    if isinstance(statistics, RowStatistics):
        total = math.prod(tensor.shape[:-1])
        if statistics.rows != total:
            words["rows"] = f"{statistics.rows}/{total}"
    for key, value in fields.items():
        if key != "layer":
            words["segments" if key == "segment_norms" else key] = value
    return " ".join(f"{key}={word(_plain(value))}" for key, value in words.items())


def record(
    site: str,
    model: str | None,
    rank: int,
    step: int,
    tensor: Subject,
    statistics: Statistics | None,
    fields: Mapping[str, object],
    *,
    when: float | None = None,
) -> bytes:
    """One JSON object and a newline; an unknown or non-finite value is null.

    ``when``: seconds since the epoch, if it was not just now.
    """
    values: dict[str, object] = {
        "site": site,
        "model": model,
        "rank": rank,
        "step": step,
        "shape": list(tensor.shape),
        "dtype": _dtype(tensor),
    }
    if statistics:
        values |= vars(statistics)
    else:
        values |= dict.fromkeys(("norm", "mean", "absmax", "nonfinite"))
        values["stats"] = "unsupported"
    values["time"] = time.time() if when is None else when
    return _json({**values, **fields})


def event(
    site: str, kind: str, model: str | None, rank: int, fields: Mapping[str, object]
) -> bytes:
    """A JSON line about the taps themselves."""
    values = {"site": site, "event": kind, "model": model, "rank": rank}
    return _json({**values, "time": time.time(), **fields})


def _json(values: Mapping[str, object]) -> bytes:
    plain = {key: _finite(_plain(value)) for key, value in values.items()}
    return json.dumps(plain, allow_nan=False).encode("ascii") + b"\n"


class JsonLines:
    """Appends to ``taps-rank{R}-pid{PID}.jsonl`` under ``directory``.

    One unbuffered write per record: nothing is lost when the process is killed, and a
    fork cannot write its parent's buffer a second time.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._owner: tuple[int, int] | None = None
        self._file: int | None = None

    def write(self, rank: int, data: bytes) -> None:
        """Never raises OSError: says it once and writes no more in this process."""
        if self._directory is None:
            return
        owner = (rank, os.getpid())
        try:
            if owner != self._owner:
                self._close()
                self._owner = owner
                self._file = self._open(self._directory, *owner)
            if self._file is not None and os.write(self._file, data) != len(data):
                raise OSError("short write, is the disk full?")
        except (OSError, ValueError) as error:
            self._close()
            say(
                "EAGLE3_DEBUG_DIR",
                f"no JSON lines under {self._directory}: {error}",
                level=logging.WARNING,
            )

    @staticmethod
    def _open(directory: str, rank: int, pid: int) -> int:
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, f"taps-rank{rank}-pid{pid}.jsonl")
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _dtype(tensor: Subject) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _plain(value: object) -> object:
    """A value that costs nothing to print: str() of a tensor would synchronise."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return type(value).__name__


def word(value: object) -> str:
    if value is None:
        return "?"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "+".join(map(word, value)) or "none"
    return "_".join(str(value).split()) or "none"


def _finite(value: object) -> object:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
