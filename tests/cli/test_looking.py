"""list, show, status, log: what they say, and that they write nothing."""

import subprocess

from clikit import DEEPSEEK, FILES, TAP, process, unchanged, write_recipe

from patchkit.registry import tap_files


def test_list_names_each_recipe_with_its_files(cli, recipes):
    write_recipe(recipes, "our-own")
    said = cli("list", "--recipes", recipes)
    assert said.code == 0
    assert "debug-logging  log the EAGLE-3 hidden states" in said.out
    assert "our-own  a recipe for tests" in said.out
    assert "deepseek_v2.py" in said.out


def test_show_says_options_environment_releases_and_files(cli):
    said = cli("show", "debug-logging")
    assert said.code == 0
    for words in ("-O layers=off", "EAGLE3_DEBUG_EVERY", "0.4.6 - 0.5.23", *FILES):
        assert words in said.out


def test_show_takes_a_module_name(cli):
    assert cli("show", "debug_logging").out == cli("show", "debug-logging").out


def test_status_of_a_stock_tree_writes_nothing(cli, site):
    with unchanged(site):
        said = cli("status", "--target", site)
    assert said.code == 0
    assert "SGLang 0.5.9" in said.out
    assert "NOT APPLIED" in said.out


def test_status_of_a_patched_tree(cli, patched):
    with unchanged(patched):
        said = cli("status", "--target", patched, "--check")
    assert said.code == 0
    # the recipe, three files, the tap's folder; and the list of those not applied
    assert said.out.count("APPLIED") == 6
    assert f"{TAP}/ (" in said.out


def test_status_check_says_no_to_drift(cli, patched):
    with open(patched / "sglang" / DEEPSEEK, "ab") as file:
        file.write(b"# mine\n")
    assert cli("status", "--target", patched).code == 0
    said = cli("status", "--target", patched, "--check")
    assert said.code == 1
    assert "DRIFTED" in said.out


def test_log_lists_entries_newest_first(cli, patched):
    assert cli("revert", "--target", patched).code == 0
    said = cli("log", "--target", patched)
    assert said.code == 0
    lines = [line for line in said.out.splitlines() if not line.startswith(" ")]
    count = 3 + len(tap_files())
    assert [line.split("  ")[1] for line in lines] == [
        f"Revert debug-logging on SGLang 0.5.9 ({count} files)",
        f"Apply debug-logging on SGLang 0.5.9 ({count} files)",
    ]
    assert "Patchkit-Recipe: debug-logging" in said.out


def test_plain_git_log_reads_the_journal(cli, patched):
    """The command that `patchkit log` names shows our lines as a diff."""
    hint = cli("log", "--target", patched).err.strip().removeprefix("patchkit: ")
    done = subprocess.run(hint.split(), capture_output=True, text=True, check=True)
    assert "Patchkit-Recipe: debug-logging" in done.stdout
    assert "+from sglang.srt import patchkit_tap  # patchkit: debug-logging" in (
        done.stdout
    )


def test_log_of_an_untouched_tree(cli, site):
    with unchanged(site):
        said = cli("log", "--target", site)
    assert said.code == 0
    assert said.out == ""
    assert "nothing was ever applied here" in said.err


def test_the_command_without_arguments_helps():
    said = process()
    assert said.code in (0, 2)
    assert "apply" in said.out + said.err
    assert "Traceback" not in said.err
