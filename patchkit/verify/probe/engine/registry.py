"""SGLang's model registry, which else imports two hundred models to find two."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from typing import Any

_PACKAGE = "sglang.srt.models."
#: Of the pair; ``llama`` is what the draft's module is built on.
MODELS = frozenset({"deepseek_v2", "llama", "llama_eagle3"})


def look_at_few() -> None:
    """Before SGLang is imported: only ``MODELS`` are there to be walked through."""
    walk: Any = pkgutil.iter_modules

    def iter_modules(path: Any = None, prefix: str = "") -> Iterator[Any]:
        for found in walk(path, prefix):
            name = found.name.removeprefix(_PACKAGE)
            if prefix != _PACKAGE or name in MODELS:
                yield found

    pkgutil.iter_modules = iter_modules
