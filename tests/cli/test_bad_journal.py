"""A journal that is damaged, or from a newer patchkit."""

import json
import shutil
import subprocess

import pytest
from clikit import FILES, LLAMA, refused, unchanged
from support import snapshot, stock

from patchkit.journal.plumbing import git as journal_git

WRITING = (["apply", "debug-logging", "-O", "layers=all"], ["reapply"], ["revert"])
LOOKING = (["status"], ["diff"], ["export"], ["log"])
COMMANDS = [*WRITING, *LOOKING]
IDS = [one[0] for one in COMMANDS]
for_each_command = pytest.mark.parametrize("command", COMMANDS, ids=IDS)


def journal(folder):
    return folder / ".patchkit" / "journal.git"


def rewrite_state(folder, change):
    """Put another state.json into the last entry, as a stranger might."""
    where = journal(folder)

    def git(*words, stdin=None):
        return journal_git(words, git_dir=where, stdin=stdin).decode().strip()

    data = change(git("cat-file", "blob", "main:state.json"))
    blob = git("hash-object", "-w", "--stdin", stdin=data.encode())
    rows = git("ls-tree", "main").splitlines()
    rows = [x for x in rows if not x.endswith("\tstate.json")]
    rows.append(f"100644 blob {blob}\tstate.json")
    tree = git("mktree", stdin=("\n".join(rows) + "\n").encode())
    commit = journal_git(
        ["-c", "user.name=x", "-c", "user.email=x@y", "commit-tree", tree, "-m", "x"],
        git_dir=where,
    )
    git("update-ref", "refs/heads/main", commit.decode().strip())


@for_each_command
def test_from_a_newer_patchkit(cli, patched, command):
    def newer(text):
        return json.dumps(json.loads(text) | {"format": 99, "patchkit": "9.8.7"})

    rewrite_state(patched, newer)
    with unchanged(patched):
        said = cli(*command, "--target", patched)
    refused(said, 3, "newer patchkit (9.8.7)", "upgrade patchkit")


def damage_objects(where):
    for one in where.rglob("objects/**/*"):
        if one.is_file():
            one.chmod(0o644)
            one.write_bytes(one.read_bytes()[: one.stat().st_size // 2])


def remove_objects(where):
    shutil.rmtree(where / "objects")
    (where / "objects").mkdir()


def empty_ref(where):
    (where / "refs/heads/main").write_text("")


def wrong_ref(where):
    (where / "refs/heads/main").write_text("0123456789" * 4 + "\n")


def no_head(where):
    (where / "HEAD").unlink()


def empty_folder(where):
    shutil.rmtree(where)
    where.mkdir()


DAMAGE = (damage_objects, remove_objects, empty_ref, wrong_ref, no_head, empty_folder)


@for_each_command
@pytest.mark.parametrize("damage", DAMAGE, ids=[one.__name__ for one in DAMAGE])
def test_damaged(cli, patched, damage, command):
    damage(journal(patched))
    with unchanged(patched):
        said = cli(*command, "--target", patched)
    refused(said, 3, "journal", "is damaged", "move that folder away")


STATES = {
    "garbage": lambda text: "garbage {",
    "a list": lambda text: "[]",
    "no keys": lambda text: "{}",
    "format is a word": lambda text: text.replace('"format": 1', '"format": "one"'),
    "files is a list": lambda text: json.dumps(json.loads(text) | {"files": []}),
    "recipes is a number": lambda text: json.dumps(json.loads(text) | {"recipes": 1}),
    "a wrong hash": lambda text: text.replace('"original": "', '"original": "00'),
}


@pytest.mark.parametrize("change", STATES)
def test_garbage_in_state_json(cli, patched, change):
    rewrite_state(patched, STATES[change])
    with unchanged(patched):
        said = cli("revert", "--target", patched)
    refused(said, 3, "is damaged")


def test_one_damaged_file_is_named(cli, patched):
    """The bytes of an original that do not fit their hash are never written."""
    where = journal(patched)
    other = journal_git(["hash-object", "-w", "--stdin"], git_dir=where, stdin=b"x\n")
    listing = journal_git(["ls-tree", "-r", "main"], git_dir=where).decode()
    name = f"original/{LLAMA}"
    assert f"\t{name}\n" in listing
    script = f"main^0\nM 100644 {other.decode().strip()} {name}\n"
    stream = (
        "commit refs/heads/main\ncommitter x <x@y> 1 +0000\ndata 1\nx\nfrom " + script
    )
    journal_git(["fast-import", "--quiet"], git_dir=where, stdin=stream.encode())
    with unchanged(patched):
        said = cli("revert", "--target", patched)
    refused(said, 3, name, "is damaged")


def test_the_way_out_that_the_message_names(cli, patched):
    """Moved away, the marked files are proven by the wheel's RECORD."""
    damage_objects(journal(patched))
    said = cli("revert", "--target", patched)
    refused(said, 3, "move that folder away")
    shutil.move(patched / ".patchkit", patched.parent / "away")
    assert cli("revert", "--target", patched).code == 0
    assert snapshot(patched) == snapshot(stock("0.5.9"))


def test_a_read_only_journal(cli, patched):
    done = subprocess.run(["chmod", "-R", "a-w", patched / ".patchkit"], check=False)
    assert done.returncode == 0
    try:
        assert cli("status", "--target", patched, "--check").code == 0
        assert cli("diff", "--target", patched).code == 0
    finally:
        subprocess.run(["chmod", "-R", "u+w", patched / ".patchkit"], check=True)


def test_an_empty_journal_folder(cli, site):
    """As a kill at the very start leaves it."""
    (site / ".patchkit").mkdir()
    assert cli("status", "--target", site).code == 0
    assert cli("apply", "debug-logging", "--target", site).code == 0
    assert {f for f in FILES} <= set(
        cli("status", "--target", site, "--json").file_states()
    )
