"""What went wrong, and what next."""

from __future__ import annotations

from typing import Any

from patchkit.errors import PatchkitError
from patchkit.report.style import Style, wrap


def error_json(problem: PatchkitError) -> dict[str, Any]:
    return {
        "error": {
            "message": problem.message,
            "hint": problem.hint,
            "details": list(problem.details),
            "exit_code": problem.exit_code,
        }
    }


def error_text(problem: PatchkitError, style: Style) -> str:
    lines = _labelled(style("error:", "red", "bold"), problem.message, style)
    lines += [f"  {line}" for line in problem.details]
    if problem.hint:
        lines += _labelled(style("next:", "bold"), problem.hint, style)
    return "\n".join(lines)


def _labelled(label: str, text: str, style: Style) -> list[str]:
    """``label text``, wrapped on a terminal only: programs match whole lines."""
    if not style.width:
        return [f"{label} {text}"]
    first, *more = wrap(text, max(40, style.width - 8)) or [""]
    return [f"{label} {first}", *(f"      {line}" for line in more)]
