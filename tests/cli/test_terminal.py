"""Colours, completion, version, progress, and slips of the keyboard."""

import os
import pty
import subprocess
import sys
import threading

import pytest
from clikit import process, refused, unchanged

from patchkit import __version__
from patchkit.cli import terminal
from patchkit.registry import Registry
from patchkit.workspace import planner

ESCAPE = "\x1b["


def on_a_terminal(*arguments, env=None):
    """What the command writes to a terminal, and its exit code."""
    leader, follower = pty.openpty()
    inherited = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    with subprocess.Popen(
        [sys.executable, "-m", "patchkit", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=subprocess.PIPE,
        env=inherited | {"TERM": "xterm"} | (env or {}),
    ) as running:
        os.close(follower)
        said = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            said += part
    os.close(leader)
    return running.returncode, said.decode()


def test_diff_has_colours_on_a_terminal_only(patched):
    code, said = on_a_terminal("diff", "--target", patched)
    assert code == 0
    assert f"{ESCAPE}32m+from sglang.srt import patchkit_tap" in said
    assert f"{ESCAPE}36m@@" in said
    piped = process("diff", "--target", patched)
    assert ESCAPE not in piped.out
    head = "diff --git "
    files = [head + one for one in piped.out.split(head)[1:]]
    ours = [one for one in files if "/patchkit_tap/" not in one.splitlines()[0]]
    folded = len(files) - len(ours)
    assert folded > 10 and ours
    colourless = "".join(
        part.partition("m")[2] if index else part
        for index, part in enumerate(said.replace("\r\n", "\n").split(ESCAPE))
    )
    talk = f"patchkit: and {folded} files of the tap's own, shown only in a pipe"
    shown, _, _ = colourless.partition(talk)
    assert shown == "".join(ours)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_turned_off(patched, env):
    code, said = on_a_terminal("diff", "--target", patched, env=env)
    assert code == 0
    assert "+from sglang.srt import patchkit_tap" in said
    assert ESCAPE not in said


def test_an_empty_no_color_means_nothing(patched):
    assert (
        ESCAPE in on_a_terminal("status", "--target", patched, env={"NO_COLOR": ""})[1]
    )


def test_json_has_no_colours_on_a_terminal(patched):
    said = on_a_terminal("status", "--target", patched, "--json")[1]
    assert ESCAPE not in said


def test_version():
    said = process("--version")
    assert (said.code, said.out) == (0, f"patchkit, version {__version__}\n")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_says_the_exit_codes(cli, flag):
    said = cli(flag)
    assert said.code == 0
    assert "Exit codes:" in said.out
    assert cli("apply", flag).code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    said = process(env={"_PATCHKIT_COMPLETE": f"{shell}_source"})
    assert said.code == 0, said.err
    assert "_PATCHKIT_COMPLETE" in said.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("patchkit sta", "plain,status"),
        ("patchkit apply debug", "plain,debug-logging"),
        ("patchkit apply --dry", "plain,--dry-run"),
    ],
)
def test_completion_of_commands_recipes_and_options(words, expected):
    env = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    said = process(env=env | {"_PATCHKIT_COMPLETE": "bash_complete"})
    assert expected in said.out.split()


def test_progress_only_where_it_takes_long(monkeypatch):
    said, shown = [], threading.Event()
    monkeypatch.setattr(terminal, "SLOW", 0.2)

    def say(text):
        said.append(text)
        shown.set()

    monkeypatch.setattr(terminal, "say", say)
    with terminal.slow("blinking"):
        pass
    with terminal.slow("looking"):
        assert shown.wait(30)
    assert said == ["looking ..."]


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_bug_of_ours_says_so(cli, site, monkeypatch, as_json):
    def fail(self):
        raise RuntimeError("surprise")

    monkeypatch.setattr(Registry, "all", fail)
    said = cli("list", *as_json)
    assert said.code == 70
    assert "surprise" in said.err
    if as_json:
        assert said.json["error"]["exit_code"] == 70
    else:
        assert "this is a bug in patchkit" in said.err


def test_an_interrupt_writes_nothing(cli, site, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(planner, "plan_apply", interrupt)
    with unchanged(site):
        said = cli("apply", "debug-logging", "--target", site)
    assert said.code == 130
    assert "interrupted" in said.err and "Traceback" not in said.err


SLIPS = [
    (["apply", "debug-loging", "--target", "T"], "did you mean debug-logging?"),
    (["show", "logging"], "did you mean debug-logging or"),
    (["revert", "debug-logings", "--target", "T"], "did you mean debug-logging?"),
    (["apply", "debug-logging", "-O", "layer=all", "--target", "T"], "mean layers?"),
    (
        ["apply", "debug-logging", "-O", "debug-loging:layers=all", "--target", "T"],
        "debug-logging",
    ),
    (["apply", "debug-logging", "-O", "layers", "--target", "T"], "key=value"),
    (["apply", "debug-logging", "-O", "layers=x", "--target", "T"], "give off, all"),
    (["apply", "debug-logging", "-O", "layers=-1", "--target", "T"], "not negative"),
    (["apply", "--target", "T"], "no recipe was named"),
    (["apply", "xyz", "--target", "T"], "patchkit list"),
    (["status", "--targe", "T"], "--target"),
    (["statu", "--target", "T"], "status"),
    (["apply", "debug-logging", "--recipes", "nowhere", "--target", "T"], "nowhere"),
    (["apply", "--from", "nowhere.toml", "--target", "T"], "nowhere.toml"),
]


@pytest.mark.parametrize(
    ("words", "expected"), SLIPS, ids=[" ".join(s[0]) for s in SLIPS]
)
def test_slips_are_usage_errors_that_help(cli, site, words, expected):
    said = cli(*[str(site) if word == "T" else word for word in words])
    refused(said, 2, expected)
    assert not (site / ".patchkit").exists()


PROJECTS = [
    ("", "recipes must list"),
    ("recipes = []", "recipes must list"),
    ("recipes = 'debug-logging'", "wrong type"),
    ("recipes = ['debug-logging'", "not valid TOML"),
    ("recipes = ['debug-loging']", "did you mean debug-logging?"),
    ("recipe = ['debug-logging']", "unknown key 'recipe'"),
    ("recipes = ['debug-logging']\n[options.other]\nx = 1", "not in recipes"),
    ("recipes = ['debug-logging']\n[options]\ndebug-logging = 1", "must be a table"),
    ("recipes = ['debug-logging']\n[options.debug-logging]\nlayer = 1", "mean layers"),
    ("recipes = ['debug-logging']\nrecipe-folders = [1]", "recipe-folders"),
    ("recipes = ['debug-logging']\nrecipe-folders = ['no']", "no such folder"),
    ("recipes = ['\xe4']".encode("latin-1"), "not valid TOML"),
]


@pytest.mark.parametrize(("text", "expected"), PROJECTS, ids=range(len(PROJECTS)))
def test_project_files_that_make_no_sense(cli, site, tmp_path, text, expected):
    path = tmp_path / "patchkit.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(cli("apply", "--from", path, "--target", site), 2, expected)
