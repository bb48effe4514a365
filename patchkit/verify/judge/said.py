"""Whether what taps say fits together: log and JSON lines, ranks, steps."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from patchkit.verify.jobs import Result
from patchkit.verify.verdict import Tally

_LOGGED = re.compile(r"EAGLE3_DEBUG\[([^\]]*)\] (rank=.*)")
#: As many lines as a call records; beyond that some are missing.
_MOST = 50

Row = Mapping[str, Any]


def fit_together(tally: Tally, result: Result) -> None:
    """People read the log and programs the JSON: each line is in both. Steps go on
    from call to call, and every line names the rank it came from."""
    steps: dict[str, int] = {}
    for name, call in result.calls().items():
        rows, printed = call["taps"], call["printed"]
        ranks = {row.get("rank") for row in rows} - {result.rank}
        tally.expect(not ranks, f"{name}: a tap says it is rank {_one(ranks)}")
        for model in {row["model"] for row in rows if row.get("model")}:
            now = {row["step"] for row in rows if row.get("model") == model}
            before = steps.get(model, 0)
            tally.expect(
                len(now) == 1 and min(now) > before,
                f"{name}: taps of {model} say step {_one(now)} after step {before}",
            )
            steps[model] = max(now)
        if len(printed) < _MOST:
            _logged_alike(tally, name, rows, printed)


def _one(values: set[Any]) -> str:
    return " and ".join(sorted(map(str, values)))


def _logged_alike(tally: Tally, name: str, rows: list[Row], printed: list[str]) -> None:
    found = [match for match in map(_LOGGED.search, printed) if match]
    if not tally.expect(
        len(found) == len(rows),
        f"{name}: {len(found)} lines in the log, {len(rows)} in the JSON file",
    ):
        return
    for match, row in zip(found, rows):
        words = dict(word.partition("=")[::2] for word in match[2].split())
        wrong = [key for key, word in words.items() if not _same(key, word, row)]
        tally.expect(
            match[1] == row["site"] and not wrong,
            f"{name}: {row['site']}: the log line differs from the JSON line"
            + (f": {wrong[0]}={words[wrong[0]]}" if wrong else f": {match[1]}"),
        )


def _same(key: str, word: str, row: Row) -> bool:
    """Whether ``word`` of a log line is what the JSON line holds under ``key``."""
    value = row.get(key)
    if value is None:
        return word == "?" or key not in row
    if isinstance(value, list):
        joint = "x" if key == "shape" else "+"
        return word == (joint.join(map(str, value)) or word)
    if isinstance(value, (int, float)):
        try:
            return math.isclose(float(word), value, rel_tol=1e-4, abs_tol=1e-30)
        except ValueError:
            return False
    return word == "_".join(str(value).split())
