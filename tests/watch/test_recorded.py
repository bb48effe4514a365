"""Logs of real runs on the CPU, as ``PATCHKIT_KEEP_LOGS`` keeps them, explained.

Only folders in them were renamed, and repeated lines, arguments and the source lines
of tracebacks left out.
"""

from __future__ import annotations

import pytest
from support import ROOT

from patchkit.watch.judge import Judge
from patchkit.watch.lines import Splitter
from patchkit.watch.replay import replay
from patchkit.watch.settings import Settings
from patchkit.watch.timeline import timeline_svg
from patchkit.watch.verdict import Outcome

#: No line is read before it was written.
LATER = 1e10
FOLDER = ROOT / "fixtures" / "watch"
ORDER_59 = [
    *("start", "distributed target", "weights target", "memory target"),
    *("distributed draft", "weights draft", "memory draft", "warm-up"),
]
ORDER_523 = [
    *("start", "distributed target", "weights target", "weights draft"),
    *("memory target", "memory draft", "warm-up"),
]
EXPECTED = {
    "ready-0.5.9": (Outcome.READY, None, "", ORDER_59),
    "ready-tp2-0.5.9": (Outcome.READY, None, "", ORDER_59),
    "ready-tp2-0.5.23": (Outcome.READY, None, "", ORDER_523),
    "crash-in-warm-up-0.5.9": (Outcome.CRASHED, "", "out-of-memory", ORDER_59),
    "other-shapes-0.5.9": (
        Outcome.CRASHED,
        "",
        "weights-do-not-fit",
        ORDER_59[:3],
    ),
    "port-in-use-0.5.9": (Outcome.CRASHED, None, "port-in-use", ORDER_59[:-1]),
    "no-checkpoint-0.5.9": (Outcome.CRASHED, None, "weights-missing", []),
    "crash-in-warm-up-0.5.23": (Outcome.CRASHED, "", "out-of-memory", ORDER_523),
    "other-shapes-0.5.23": (
        Outcome.CRASHED,
        "",
        "weights-do-not-fit",
        ORDER_523[:3],
    ),
    "port-in-use-0.5.23": (Outcome.CRASHED, None, "port-in-use", ORDER_523[:-1]),
    # the log of a killed rank holds no word of it: that takes a look at the processes
    "killed-0.5.9": (Outcome.LOADING, None, "", ORDER_59[:3]),
}


def test_every_log_is_expected():
    assert {path.stem for path in FOLDER.glob("*.log")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_it_is_explained(name):
    outcome, rank, cause, order = EXPECTED[name]
    judge, found = replay(str(FOLDER / f"{name}.log"), Settings())
    assert (found.outcome, found.rank, found.cause) == (outcome, rank, cause), found
    assert [label for label, _ in found.phases] == order
    assert all(seconds >= 0 for _, seconds in found.phases)
    ranks = ["TP0", "TP1"] if "tp2" in name or "killed" in name else [""]
    if name.startswith("no-checkpoint"):
        ranks = []  # it did not get that far
    assert judge.phases.ranks == ranks
    svg = timeline_svg(judge.phases, found)
    assert all(f">{rank or 'rank 0'}</text>" in svg for rank in ranks)


@pytest.mark.parametrize("name", EXPECTED)
def test_in_any_pieces_it_is_the_same(name):
    """As it comes while a server writes it: a few bytes at a time."""
    data = (FOLDER / f"{name}.log").read_bytes()
    splitter, judge = Splitter(), Judge(Settings(request=False), 0.0)
    for at in range(0, len(data), 13):
        for raw in splitter.feed(data[at : at + 13]):
            judge.feed(raw, LATER, fresh=False)
    whole, _ = replay(str(FOLDER / f"{name}.log"), Settings())
    assert begun(judge) == begun(whole)
    assert len(judge.tracebacks.found) == len(whole.tracebacks.found)


def begun(judge):
    return [(one.rank, one.label, one.name, one.began) for one in judge.phases.spans]


def test_a_harmless_traceback_is_seen_and_left_alone():
    judge, _ = replay(str(FOLDER / "ready-0.5.9.log"), Settings())
    assert [one.error for one in judge.tracebacks.found] == [
        "ModuleNotFoundError: No module named 'openai_harmony'"
    ]
