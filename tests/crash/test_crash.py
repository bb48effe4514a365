"""Kills and full disks: a sample by default, every point with ``-m crash``.

``make crash`` prints the same trials as a table.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import CannotBuild
from sabotage import KINDS
from scenarios import LAYOUTS, SCENARIOS
from table import jobs, run_jobs


def rows_of(todo):
    try:
        return run_jobs(todo)
    except CannotBuild as reason:
        pytest.skip(str(reason))


def failures(rows):
    return [f"{row['trial']}: {one}" for row in rows for one in row["failures"]]


def test_a_sample_of_kills_and_full_disks_is_survived():
    todo = jobs("first apply", "site-packages", every=16)
    todo += jobs("over edits", "checkout", every=12)
    rows = rows_of(todo)
    assert failures(rows) == []
    for trial in ("kill", "kill the repair", "kill, then edit", "full disk"):
        assert sum(row["points"] for row in rows if row["trial"] == trial) > 0, trial


def test_a_command_started_as_users_start_it_is_survived():
    (row,) = rows_of(
        jobs(
            *("revert", "site-packages"),
            **{"start": 30, "every": 20, "real": True, "trials": ["kill"]},
        )
    )
    assert failures([row]) == []
    assert row["points"] > 0


def test_an_interrupted_commit_never_costs_the_user_a_lock_of_theirs():
    rows = rows_of(jobs("apply --commit", start=120, every=30))
    assert failures(rows) == []


def test_the_suite_has_teeth():
    assert failures(rows_of(sabotaged("no repair", every=9)))


@pytest.mark.crash
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scenario", [one.name for one in SCENARIOS])
def test_every_kill_point_is_survived(scenario, layout):
    todo = jobs(scenario, layout)
    if not todo:
        pytest.skip("only a checkout has commits")
    assert failures(rows_of(todo)) == []


@pytest.mark.crash
@pytest.mark.parametrize("kind", KINDS)
def test_the_suite_notices(kind):
    assert failures(rows_of(sabotaged(kind, every=3)))


def sabotaged(kind, every):
    return jobs(
        *("first apply", "site-packages"),
        **{"sabotage": kind, "every": every, "trials": ["kill"]},
    )
