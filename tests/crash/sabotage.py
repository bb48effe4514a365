"""Ways to break patchkit that the suite must notice: it has teeth only if it does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patchkit.journal.store import Store
from patchkit.workspace import files, recovery, tree, writer


def _write_in_place(
    package: Path,
    changes: Mapping[str, bytes | None],
    expected: Mapping[str, bytes | None],
) -> list[str]:
    for path, data in changes.items():
        real = files.real_path(package, path)
        if data is None:
            real.unlink()
            continue
        real.parent.mkdir(exist_ok=True)
        with open(real, "wb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            file.write(data[len(data) // 2 :])
    files._remove_tap_folder(package)
    return []


def _journal_last(workspace: Any, plan: Any) -> list[str]:
    notes = files.write_all(
        workspace.target.package,
        plan.writes,
        {one.path: one.before for one in plan.files},
    )
    arguments = (plan.state(), plan.contents(), workspace.recorded.commit)
    workspace.store.settle(workspace.store.record(*arguments, "late", ""))
    workspace._read()
    return notes


def _no_repair(package: Path, store: Store, *states: Any) -> str:
    store.drop_pending()
    return "undone"


def _nothing(*arguments: Any) -> None:
    pass


KINDS: dict[str, tuple[Any, str, Any]] = {
    "write in place": (files, "write_all", _write_in_place),
    "journal last": (writer, "_write", _journal_last),
    "no repair": (tree, "recover", _no_repair),
    "no settling": (Store, "settle", _nothing),
    "keep temporary files": (recovery.files, "remove_leftovers", _nothing),
    "keep stale locks": (Store, "clean", _nothing),
}


def commit(kind: str) -> None:
    setattr(*KINDS[kind])
