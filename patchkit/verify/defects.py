"""Known defects of stock SGLang releases, and when one is no fault of a patch."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Defect:
    """``first`` to ``last`` are the releases, inclusive, in which it was seen; ``last``
    "": also in the newest there is."""

    name: str
    check: str
    first: str
    last: str
    text: str


DEFECTS = {
    one.name: one
    for one in (
        Defect(
            "capture-before-all-reduce",
            "fusion",
            "0.5.4.post2",
            "0.5.13.post1",
            "with all-reduce fusion on, aux states are captured before the deferred"
            " all-reduce: each rank hands on a part of the sum",
        ),
        Defect(
            "draft-positions",
            "engine-steps",
            "0.5.4.post2",
            "0.5.11",
            "the second and later draft steps run at positions one too high"
            " (sgl-project/sglang#25015): a draft that looks back by position misses",
        ),
        Defect(
            "graph-layers",
            "capture-order",
            "0.4.6",
            "0.5.10.post1",
            "CUDA graphs are captured with the default layers, and the draft's own"
            " ids arrive afterwards: prefill and decode differ",
        ),
        Defect(
            "kimi-delegates",
            "kimi-wrapper",
            "0.5.9",
            "0.5.9",
            "the Kimi-K2.5 wrapper hands none of EAGLE-3's calls on to its language"
            " model: the server ends at its start",
        ),
        Defect(
            "logprobs-last",
            "capture",
            "0.4.6",
            "0.5.10.post1",
            "a request for input log-probabilities that keeps only the last hidden"
            " state raises: that pruning path of the logits processor is not filled",
        ),
        Defect(
            "unsorted-ids",
            "unsorted-ids",
            "0.4.6",
            "",
            "layer ids out of order are captured in layer order, without a word:"
            " the draft's fc gets its states swapped",
        ),
        Defect(
            "embedding-ids",
            "embedding-ids",
            "0.4.6",
            "",
            "layer id -1 (the embedding's output) raises, or is left out",
        ),
        Defect(
            "width-guard",
            "width-guard",
            "0.4.6",
            "",
            "one layer's state where the draft's fc expects several skips fc, without"
            " a word: accept length 1.0",
        ),
        Defect(
            "weight-guard",
            "weight-guard",
            "0.4.6",
            "",
            "tensors of a draft checkpoint whose names the release does not know are"
            " dropped, without a word",
        ),
    )
}


def is_known(name: str, version: str) -> bool:
    """Whether ``version`` is among the releases that have the defect.

    A fork or a checkout that says no release number is given the benefit of the
    doubt; the baseline must show the defect too, in any case.
    """
    number = release_key(version)
    if number is None:
        return True
    defect = DEFECTS[name]
    first, last = release_key(defect.first), release_key(defect.last)
    assert first is not None
    return first <= number and (last is None or number <= last)


def release_key(version: str) -> tuple[int, ...] | None:
    """``0.5.4.post2`` -> (0, 5, 4, 2): to compare; ``None`` if it is no release."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?(?:\+.*)?\Z", version)
    return tuple(int(part or 0) for part in match.groups()) if match else None
