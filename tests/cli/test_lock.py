"""One patchkit at a time."""

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from clikit import process, refused, unchanged

HOLD = """
import sys
from pathlib import Path
from patchkit.workspace import lock
with lock.held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_patchkit(folder):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield holder
        holder.stdin.close()


@pytest.mark.parametrize(
    "command", [["apply", "debug-logging"], ["reapply"], ["revert"]]
)
def test_a_second_patchkit_says_who_is_at_work(cli, patched, command):
    with another_patchkit(patched / ".patchkit") as holder:
        with unchanged(patched):
            said = cli(*command, "--target", patched)
        refused(said, 3, f"pid {holder.pid}", "wait for it")
        assert re.search(r"for \d+ s\)", said.err)
        # looking is allowed
        assert cli("status", "--target", patched, "--check").code == 0
        assert cli("diff", "--target", patched).code == 0
        assert cli(*command, "--target", patched, "--dry-run").code == 0
    assert cli(*command, "--target", patched).code == 0


def test_a_first_apply_while_another_one_begins(cli, site):
    with another_patchkit(site / ".patchkit"):
        said = cli("apply", "debug-logging", "--target", site)
        refused(said, 3, "another patchkit")
    assert cli("apply", "debug-logging", "--target", site).code == 0


def test_a_lock_whose_holder_was_killed(cli, patched):
    with another_patchkit(patched / ".patchkit") as holder:
        holder.kill()
        holder.wait()
        assert (patched / ".patchkit" / "lock").read_text().split()[0] == str(
            holder.pid
        )
        assert cli("revert", "--target", patched).code == 0


@pytest.mark.parametrize("text", ["", "garbage", "99999999 12", "1 2 3"])
def test_a_lock_file_that_nobody_holds(cli, patched, text):
    (patched / ".patchkit" / "lock").write_text(text)
    assert cli("revert", "--target", patched).code == 0


@pytest.mark.parametrize(
    "text",
    ["", "garbage", "two words"],
)
def test_a_held_lock_that_says_nothing(cli, patched, text):
    with another_patchkit(patched / ".patchkit"):
        (patched / ".patchkit" / "lock").write_text(text)
        refused(cli("revert", "--target", patched), 3, "another patchkit")


def test_many_at_once(site):
    """Each one either does it or says who is at work; the tree is whole after."""
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "patchkit", *words, "--target", site],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for words in (["apply", "debug-logging"], ["apply", "debug-logging"])
    ]
    said = [one.communicate()[1] for one in commands]
    for one, words in zip(commands, said):
        assert one.returncode == 0 or (one.returncode == 3 and "pid" in words), words
    assert process("status", "--target", site, "--check").code == 0


def test_the_lock_is_not_held_by_a_child_of_a_recipe(cli, site, recipes):
    """A process that a recipe leaves behind does not lock the target for ever."""
    from clikit import write_recipe

    body = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(recipes / 'pid')!r}, 'w').write(str(child.pid))\n"
        "return insert_first(function, build)"
    )
    write_recipe(recipes, body=body)
    options = ("--target", site, "--recipes", recipes)
    assert cli("apply", "user-recipe", *options).code == 0
    try:
        assert cli("revert", *options).code == 0
    finally:
        os.kill(int((recipes / "pid").read_text()), 9)
        time.sleep(0)
