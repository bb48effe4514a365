"""Names of an engine's shared memory, by which what it leaves can be told."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable
from multiprocessing import process, shared_memory
from typing import Any

_begins = ""


def name_memory(begins: str) -> None:
    """From now on, in this process and its forks, names begin so."""
    global _begins
    _begins = f"{begins}-"
    module: Any = shared_memory
    module._make_filename = lambda: f"/{_begins}{secrets.token_hex(4)}"
    current: Any = process.current_process()
    current._config["semprefix"] = f"/{_begins}mp"


def named(theirs: Callable[[str], str]) -> Callable[[str], str]:
    """For SGLang's own function that makes a name (newer releases)."""
    return lambda kind: _begins + theirs(kind)


def in_folder(theirs: Callable[[str], str]) -> Callable[[str], str]:
    """A file that SGLang maps, and would put where nobody removes it."""

    def path(name: str) -> str:
        file = theirs(name)
        if not _begins:  # a server's, which has no folder of ours
            return file
        return os.path.join(tempfile.gettempdir(), os.path.basename(file))

    return path
