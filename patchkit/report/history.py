"""log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from patchkit.report.style import Style


def log_text(entries: Sequence[dict[str, Any]], style: Style) -> str:
    lines = []
    for one in entries:
        lines.append(
            f"{style(one['commit'][:12], 'yellow')} {one['when']}  {one['what']}"
        )
        shown = [f"{k}: {v}" for k, v in one["trailers"] if k != "Patchkit"]
        lines += [style(f"    {line}", "dim") for line in shown]
    return "\n".join(lines)


def when(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(seconds))
