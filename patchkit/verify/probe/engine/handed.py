"""The target's states as the draft's model is handed them, in front of ``fc``.

Looked at from outside: its forward is wrapped, and its ``fc`` watched, whatever the
code in between does. States are told as what is not zero in each row, which is little.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

#: Entries told of a row, the largest: a state of the pair's has some thirty.
MOST = 96
#: What attention leaves of other positions is far below.
LEAST = 2.0**-20

Tell = Callable[[dict[str, Any]], None]


def watch(module: types.ModuleType, tell: Tell) -> None:
    """Have ``tell`` called with each pass of the draft's that takes the target's
    states: not with later draft steps, which take its own.

    A pass: ``prefill``; ``width`` of the states and ``hidden`` of the draft; ``fc``,
    whether it was called; ``tokens`` that come with the rows; ``rows`` [rows][entries]
    of column and value.
    """
    model: Any = vars(module)["LlamaModel"]
    forward = model.forward
    signature = inspect.signature(forward)

    def looked(self: Any, *args: Any, **named: Any) -> Any:
        given = signature.bind(self, *args, **named).arguments
        batch = given["forward_batch"]
        states = getattr(batch.spec_info, "hidden_states", None)
        if states is None or not len(states) or batch.forward_mode.is_decode():
            return forward(self, *args, **named)
        told = _told(batch, given["input_ids"], states, self.config.hidden_size)
        calls = _calls(self)
        found = forward(self, *args, **named)
        tell(told | {"fc": _calls(self) > calls})
        return found

    model.forward = looked


def _told(batch: Any, tokens: Any, states: Any, hidden: int) -> dict[str, Any]:
    wide = states.detach().float().cpu()
    rows = []
    for row in wide:
        some = row.abs().topk(min(MOST, len(row))).indices.sort().values
        entries = zip(some.tolist(), row[some].tolist())
        rows.append([[column, x] for column, x in entries if not abs(x) <= LEAST])
    modes = ("is_draft_extend", "is_draft_extend_v2")
    mode = batch.forward_mode
    return {
        "prefill": not any(getattr(mode, one, lambda: False)() for one in modes),
        "width": states.shape[-1],
        "hidden": hidden,
        "tokens": tokens.tolist(),
        "rows": rows,
    }


def _calls(model: Any) -> int:
    """How often ``fc`` was called since it was first asked for."""
    fc = getattr(model, "fc", None)
    if fc is None:
        return 0
    if not hasattr(fc, "patchkit_calls"):
        fc.patchkit_calls = 0

        def count(one: Any, *_: Any) -> None:
            one.patchkit_calls += 1

        fc.register_forward_hook(count)
    return int(fc.patchkit_calls)
