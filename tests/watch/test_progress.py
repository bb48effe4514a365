"""How far: of the model that is at hand, and never of the one before."""

from __future__ import annotations

import pytest
from watchkit import BEGAN, Play

BAR = "Loading safetensors checkpoint shards: {} Completed | {}/{} [00:10<00:30]"


def bar(play, done, total):
    text = BAR.format(f"{100 * done // total}%", done, total)
    return play.say(text, bare=True)


def drafting(play):
    """The target is loaded, and the draft's load begins."""
    play.arguments(speculative_algorithm="EAGLE3")
    for rank in play.ranks:
        play.say("Load weight begin.", rank)
    bar(play, 1, 4)
    assert progress(play).counted.startswith("1/4 shards")
    bar(play, 4, 4)
    assert progress(play).fraction == 1
    for rank in play.ranks:
        play.say("Load weight end.", rank)
    assert progress(play).fraction is None, "nothing is loaded now"
    for rank in play.ranks:
        play.say("Load weight begin.", rank)
    return play


def progress(play):
    return play.judge.progress(BEGAN + play.now)


@pytest.mark.parametrize("total", [4, 8])
def test_the_bar_of_the_target_is_not_the_drafts(total):
    play = drafting(Play())
    assert play.judge.phases.label() == "weights draft"
    assert progress(play).fraction is None and progress(play).counted == ""
    bar(play, 2, total)
    assert progress(play).counted == f"2/{total} shards"
    assert progress(play).fraction == 2 / total


def test_a_draft_of_one_shard_after_a_target_of_one():
    play = Play().arguments(speculative_algorithm="EAGLE3").wait(1)
    for _ in range(2):
        for rank in play.ranks:
            play.say("Load weight begin.", rank)
        bar(play, 1, 1)
        assert progress(play).counted == "1/1 shards"
        for rank in play.ranks:
            play.say("Load weight end.", rank)


def test_the_bytes_of_the_target_are_not_the_drafts():
    play, ranks = Play(), ("TP0", "TP1")
    full = tuple((rank, 10**6) for rank in ranks)
    play.sample(loaded=full, checkpoint=10**6)
    drafting(play).sample(loaded=full, checkpoint=10**6)
    assert progress(play).fraction is None
    half = tuple((rank, 500) for rank in ranks)
    play.sample(loaded=half, checkpoint=1000)
    assert progress(play).fraction == 0.5
