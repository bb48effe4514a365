"""Does a running server use the patched files? For ``patchkit status --pid``.

Python loads a file once: a server that was started before a file was changed runs what
was there then, and one that imports another copy of sglang never sees the change.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.errors import UsageError
from patchkit.report.style import Style, wrap
from patchkit.target import imported_package
from patchkit.watch.locate import open_tree

#: Frames of a rank's stack name the files that it runs.
_INSIDE = "/sglang/srt/"


@dataclass(frozen=True)
class Running:
    """``started``: when the oldest rank was (the server, if it has none yet), in
    seconds since the epoch; ``package``: the sglang folder that it runs, ``None`` if
    that can't be known; ``how``: how it was found out."""

    pid: int
    command: str
    started: float
    ranks: int
    package: Path | None
    how: str


def look(pid: int) -> Running:
    """What runs there. Raises UsageError for no such process."""
    tree = open_tree(pid)
    ranks, _ = tree.sample()
    command = " ".join(tree.root.cmdline())
    alive = [one.pid for one in ranks if one.state != "Z"]
    started = min(
        (tree.psutil.Process(one).create_time() for one in alive),
        default=tree.started,
    )
    package, how = _package_by_stack(alive or [pid])
    if package is None:
        package, how = _package_by_import(tree.root)
    return Running(pid, command, started, len(alive), package, how)


def _package_by_stack(pids: Iterable[int]) -> tuple[Path | None, str]:
    """From the files in a rank's stack: what it really runs."""
    from patchkit.watch.dumping import files_in_stack

    for pid in pids:
        for file in files_in_stack(pid):
            if _INSIDE in file:
                top = file.rpartition(_INSIDE)[0]
                return Path(top, "sglang").resolve(), "its stack"
    return None, ""


def _package_by_import(process: Any) -> tuple[Path | None, str]:
    """What its interpreter would import, with its folder and its environment."""
    try:
        program, folder = process.exe(), process.cwd()
        variables = process.environ()
        command = process.cmdline()
    except Exception:  # of psutil: gone, or not ours to look at
        return None, "nothing of it may be read"
    # as it was called: the link in an environment's bin/ says which one it is
    named = command[0] if command and os.path.isabs(command[0]) else program
    for place in (variables.get("PYTHONPATH") or "").split(os.pathsep):
        candidate = Path(folder, place, "sglang")
        if place and (candidate / "__init__.py").exists():
            return candidate.resolve(), "its PYTHONPATH"
    try:
        return imported_package(named), "its interpreter"
    except UsageError:
        return None, "its interpreter can't be asked"


def compare(
    running: Running, package: Path, changed: Mapping[str, float]
) -> dict[str, Any]:
    """As JSON. ``changed``: file of a recipe -> when it was last written."""
    same = running.package == package
    files = [
        {
            "path": path,
            "changed": at,
            "loaded": same and at <= running.started,
        }
        for path, at in sorted(changed.items())
    ]
    return {
        "pid": running.pid,
        "command": running.command,
        "started": running.started,
        "ranks": running.ranks,
        "package": str(running.package) if running.package else None,
        "known_by": running.how,
        "runs_this_copy": same if running.package else None,
        "files": files,
    }


def uses_all(value: Mapping[str, Any]) -> bool:
    return bool(value["runs_this_copy"]) and all(
        one["loaded"] for one in value["files"]
    )


def last_written(package: Path, paths: Iterable[str]) -> dict[str, float]:
    """When each file was written; those that are gone are left out."""
    found = {}
    for path in paths:
        try:
            found[path] = (package / path).stat().st_mtime
        except OSError:
            continue
    return found


def running_text(value: Mapping[str, Any], style: Style) -> str:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value["started"]))
    ranks = f", {value['ranks']} ranks" if value["ranks"] else ""
    lines = ["", f"process {value['pid']}{ranks}, running since {started}"]
    warning = style("warning:", "yellow")
    if value["package"] is None:
        lines.append(f"{warning} which sglang it runs can't be told:"
                     f" {value['known_by']}")  # fmt: skip
        return "\n".join(lines)
    if not value["runs_this_copy"]:
        lines.append(f"{warning} it runs {value['package']} ({value['known_by']})")
        lines.append(
            _next("start it with this copy, or patch the one that it runs", style)
        )
        return "\n".join(lines)
    lines.append(style(f"it runs this copy (by {value['known_by']})", "dim"))
    stale = [one for one in value["files"] if not one["loaded"]]
    if not stale:
        return "\n".join(lines)
    lines.append(f"{warning} it was started before these files were written:")
    for one in stale:
        at = time.strftime("%H:%M:%S", time.localtime(one["changed"]))
        lines.append(f"  {one['path']:<38} {style('NOT LOADED', 'yellow')}  {at}")
    lines.append(_next("restart the server", style))
    return "\n".join(lines)


def _next(text: str, style: Style) -> str:
    first, *more = wrap(text, 72)
    return "\n".join(
        [f"{style('next:', 'bold')} {first}", *(f"      {m}" for m in more)]
    )
