"""The server's arguments name the draft, as they do at a real start."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from patchkit.verify.probe.runtime import optional


@contextlib.contextmanager
def named_draft(fields: Mapping[str, Any], layer_ids: Sequence[int]) -> Iterator[None]:
    """Inside, ``speculative_draft_model_path`` is a folder with the draft's
    config.json, whose ``eagle_config`` holds ``layer_ids``.

    Up to 0.5.3 a model can't see these arguments, so nothing is done.
    """
    module = optional("sglang.srt.server_args")
    if not hasattr(module, "get_global_server_args"):
        yield
        return
    args = module.get_global_server_args()
    config = {
        **fields,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(layer_ids)},
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        before = args.speculative_draft_model_path
        args.speculative_draft_model_path = folder
        try:
            yield
        finally:
            args.speculative_draft_model_path = before
