"""diff and export: what they show, and that other tools take it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from clikit import (
    DEEPSEEK,
    FILES,
    LLAMA,
    LOGITS,
    TAP,
    edit,
    process,
    refused,
    unchanged,
    write_recipe,
)
from support import git, snapshot

TAKERS = (["git", "apply"], ["patch", "-p1", "--quiet", "-i"])


def take(taker, patch, folder):
    done = subprocess.run([*taker, patch], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


def test_diff_adds_marked_lines_and_the_tap(cli, patched):
    with unchanged(patched):
        said = cli("diff", "--target", patched)
    assert said.code == 0
    files = [x[6:] for x in said.out.splitlines() if x.startswith("+++ b/")]
    assert set(files) >= {f"sglang/{path}" for path in FILES}
    before_tap = said.out.partition(f"diff --git a/sglang/{TAP}")[0]
    added = [x for x in before_tap.splitlines() if x[:1] == "+" and x[:3] != "+++"]
    assert added and all(x.endswith("# patchkit: debug-logging") for x in added)


def test_diff_of_nothing(cli, site):
    said = cli("diff", "--target", site)
    assert (said.code, said.out) == (0, "")


def test_diff_of_one_recipe(cli, patched, recipes):
    write_recipe(recipes)
    options = ("--target", patched, "--recipes", recipes)
    assert cli("apply", "user-recipe", *options).code == 0
    said = cli("diff", "user-recipe", *options)
    assert said.code == 0
    added = [x for x in said.out.splitlines() if x[:1] == "+" and x[:3] != "+++"]
    assert added == ["+        said = 'hello'  # patchkit: user-recipe"]
    both = cli("diff", *options).out
    assert added[0] in both and "patchkit: debug-logging" in both


def test_diff_of_a_recipe_that_is_not_applied(cli, site):
    said = cli("diff", "debug-logging", "--target", site)
    assert (said.code, said.out) == (0, "")
    refused(cli("diff", "debug-loging", "--target", site), 2, "debug-logging")


def test_drift_shows_the_users_edits_only(cli, patched):
    edit(patched / "sglang" / LLAMA, "# idle batch", "# idle batch, mine")
    said = cli("diff", "--drift", "--target", patched)
    assert said.code == 0
    body = [x for x in said.out.splitlines() if x[:1] in "+-" and x[:2] != x[:1] * 2]
    assert body == ["-        # idle batch", "+        # idle batch, mine"]
    assert "mine" not in cli("diff", "--target", patched).out


def test_drift_is_still_shown_once_it_was_merged(cli, patched):
    edit(patched / "sglang" / LLAMA, "# idle batch", "# idle batch, mine")
    assert cli("apply", "debug-logging", "--target", patched).code == 0
    assert "# idle batch, mine" in cli("diff", "--drift", "--target", patched).out


@pytest.mark.parametrize("taker", TAKERS, ids=["git-apply", "patch"])
def test_export_makes_a_stock_tree_the_patched_one(cli, patched, site, tmp_path, taker):
    out = tmp_path / "my.patch"
    said = cli("export", "--target", patched, "-o", out)
    assert said.code == 0
    assert "git apply" in said.out and "patch -p1" in said.out
    take(taker, out, site)
    assert snapshot(site) == snapshot(patched)
    take([*taker[:1], *taker[1:2], "-R", *taker[2:]], out, site)
    assert cli("status", "--target", site, "--json").states() == {
        "debug-logging": "NOT APPLIED"
    }


def test_export_to_stdout_is_the_same_patch(cli, patched, tmp_path):
    out = tmp_path / "my.patch"
    cli("export", "--target", patched, "-o", out)
    assert cli("export", "--target", patched).raw == out.read_bytes()


def test_export_of_a_checkout_is_relative_to_its_top(
    cli, patched_checkout, checkout, tmp_path
):
    out = tmp_path / "my.patch"
    assert cli("export", "--target", patched_checkout, "-o", out).code == 0
    git(checkout, "apply", "--check", "--whitespace=error-all", str(out))
    git(checkout, "apply", str(out))
    assert snapshot(checkout) == snapshot(patched_checkout)


@pytest.mark.parametrize("taker", TAKERS, ids=["git-apply", "patch"])
def test_export_of_crlf_and_of_no_final_newline(cli, site, tmp_path, taker):
    llama, logits = site / "sglang" / LLAMA, site / "sglang" / LOGITS
    llama.write_bytes(llama.read_bytes().replace(b"\n", b"\r\n"))
    logits.write_bytes(logits.read_bytes().rstrip(b"\n"))
    other = tmp_path / "other"
    subprocess.run(["cp", "-r", site, other], check=True)
    assert cli("apply", "debug-logging", "--target", site).code == 0
    out = tmp_path / "my.patch"
    assert cli("export", "--target", site, "-o", out).code == 0
    take(taker, out, other)
    assert snapshot(other) == snapshot(site)


@pytest.mark.parametrize("taker", TAKERS, ids=["git-apply", "patch"])
def test_export_of_a_change_at_the_very_end(cli, site, recipes, tmp_path, taker):
    """The last line without a newline, in the middle of a hunk."""
    llama = site / "sglang" / LLAMA
    data = b"class LlamaModel:\n    def forward(self):\n        return 1"
    llama.write_bytes(data)
    write_recipe(recipes)
    options = ("--target", site, "--recipes", recipes)
    assert cli("apply", "user-recipe", *options).code == 0
    out = tmp_path / "my.patch"
    assert cli("export", *options, "-o", out).code == 0
    assert b"\\ No newline at end of file" in out.read_bytes()
    patched = llama.read_bytes()
    llama.write_bytes(data)
    take(taker, out, site)
    assert llama.read_bytes() == patched


def test_export_from_a_path_with_spaces_and_other_letters(cli, site, tmp_path):
    top = tmp_path / "my prüf tree"
    (top / "vendor dir é").mkdir(parents=True)
    site.rename(top / "vendor dir é" / "lib")
    git(top, "init", "-q")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "stock")
    options = ("--target", top / "vendor dir é" / "lib")
    assert cli("apply", "debug-logging", *options).code == 0
    patched = snapshot(top)
    out = tmp_path / "my.patch"
    assert cli("export", *options, "-o", out).code == 0
    assert cli("revert", *options).code == 0
    for taker in TAKERS:
        take(taker, out, top)
        assert snapshot(top) == patched
        git(top, "checkout", "-q", ".")
        git(top, "clean", "-qfd")


def test_nothing_to_export(cli, site):
    refused(cli("export", "--target", site), 3, "nothing is applied")


def test_export_into_a_folder_that_is_not_there(cli, patched, tmp_path):
    said = cli("export", "--target", patched, "-o", tmp_path / "no" / "my.patch")
    refused(said, 2, "can't be written")


def test_the_reader_of_a_diff_may_leave(patched):
    """`patchkit diff | head -1`: no traceback, and not our exit code 1 either."""
    command = f"patchkit diff --target '{patched}'; echo $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"( for i in 1 2 3; do {command}; done ) | head -1"],
        capture_output=True,
        text=True,
        env=process_path(),
    )
    assert done.stdout.startswith("diff --git")
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr
    assert done.stderr.split()[-1] in ("0", "141")


def process_path():
    folder = str(Path(sys.executable).parent)
    return os.environ | {"PATH": folder + os.pathsep + os.environ["PATH"]}


def test_gate_recipes_have_no_diff_of_their_own(cli, site, recipes):
    body = "return insert_first(function, build)"
    path = write_recipe(recipes, body=body, file=DEEPSEEK, owner="DeepseekV2Model")
    text = path.read_text().replace(
        "    version", "    inserts_only = False\n    version"
    )
    path.write_text(text)
    options = ("--target", site, "--recipes", recipes)
    said = process("apply", "user-recipe", *options)
    if said.code == 3:  # a second run adds a second line: not idempotent
        assert "not idempotent" in said.err
    else:
        refused(cli("diff", "user-recipe", *options), 2, "upstream lines")
