"""What engine jobs are asked, as files: the pair and one request a variant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from patchkit.canary.folder import write_pair
from patchkit.verify import pair


def write_requests(
    folder: Path, variants: Mapping[str, pair.Variant] = pair.VARIANTS
) -> dict[str, str]:
    """The canary pair, and what each engine is asked, below ``folder``; the scenario
    of each variant."""
    write_pair(pair.plan(), folder / "pair")
    found = {}
    for name, variant in variants.items():
        file = folder / f"{name}.json"
        file.write_text(json.dumps(variant.request(str(folder / "pair"))))
        found[name] = f"engine:{file}"
    return found
