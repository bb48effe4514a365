"""apply, reapply and revert where all is well."""

import pytest
from clikit import (
    DEEPSEEK,
    FILES,
    LLAMA,
    TAP,
    plain,
    process,
    refused,
    unchanged,
    write_recipe,
)
from support import git, snapshot

APPLY = ("apply", "debug-logging", "--target")


def test_apply_says_what_changed_and_what_to_do_next(site):
    before = snapshot(site)
    said = process(*APPLY, site)
    assert said.code == 0
    assert "apply debug-logging: done" in said.out
    assert "next: restart the server" in said.out
    assert "EAGLE3_DEBUG=1" in said.out
    after = snapshot(site)
    changed = {path for path in after if before.get(path) != after[path]}
    tap = {path for path in after if f"/{TAP}/" in path}
    assert changed == {f"sglang/{path}" for path in FILES} | tap
    assert tap
    for path in FILES:
        assert plain(after[f"sglang/{path}"]) == before[f"sglang/{path}"]


def test_a_second_apply_changes_nothing(cli, patched):
    with unchanged(patched):
        said = cli(*APPLY, patched)
    assert said.code == 0
    assert "nothing to do" in said.out


def test_dry_run_shows_the_diff_and_writes_nothing(cli, site):
    with unchanged(site):
        said = cli(*APPLY, site, "--dry-run")
    assert said.code == 0
    assert said.out.startswith("diff --git a/sglang/srt/")
    assert "+from sglang.srt import patchkit_tap" in said.out
    assert "would change" in said.err
    assert "next:" not in said.err


def test_check_says_no_where_something_would_change(cli, site, patched):
    with unchanged(site):
        said = cli(*APPLY, site, "--check")
    assert said.code == 1
    assert said.out == ""
    with unchanged(patched):
        assert cli(*APPLY, patched, "--check").code == 0
        assert cli("reapply", "--target", patched, "--check").code == 0
        assert cli("revert", "--target", patched, "--check").code == 1


def test_dry_run_of_revert_is_the_diff_back(cli, patched):
    forwards = cli("diff", "--target", patched).out
    with unchanged(patched):
        back = cli("revert", "--target", patched, "--dry-run")
    assert back.code == 0

    def lines(sign: str, text: str) -> list[str]:
        found = [line for line in text.splitlines() if line.startswith(sign)]
        return [line[1:] for line in found if not line.startswith(sign * 3)]

    assert lines("-", back.out) == lines("+", forwards)
    assert lines("-", forwards) == []


def test_options_change_the_tree_and_show_in_status_and_log(cli, patched):
    before = snapshot(patched)
    assert cli(*APPLY, patched, "-O", "layers=all").code == 0
    text = (patched / "sglang" / DEEPSEEK).read_text()
    assert '"deepseek_v2.layer"' in text
    assert "debug-logging 1 layers=all" in cli("status", "--target", patched).out
    assert "Patchkit-Options: layers=all" in cli("log", "--target", patched).out
    # back to the default: the bytes of an apply that never had the option
    assert cli(*APPLY, patched, "-O", "layers=off").code == 0
    assert snapshot(patched) == before


def test_from_a_project_file(cli, site, recipes, tmp_path):
    write_recipe(recipes)
    project = tmp_path / "patchkit.toml"
    project.write_text(
        'recipes = ["debug-logging", "user-recipe"]\nrecipe-folders = ["recipes"]\n'
        "[options.debug-logging]\nlayers = [0, 2]\n"
    )
    said = cli("apply", "--from", project, "--target", site)
    assert said.code == 0, said.err
    assert len(cli("log", "--target", site, "--json").json) == 1
    status = cli("status", "--target", site, "--json")
    applied = {k for k, v in status.states().items() if v == "APPLIED"}
    assert applied == {"debug-logging", "user-recipe"}
    options = {one["name"]: one["options"] for one in status.json["recipes"]}
    assert options["debug-logging"] == {"layers": "0,2"}
    with unchanged(site):
        assert cli("apply", "--from", project, "--target", site, "--check").code == 0


def test_several_recipes_are_one_transaction(cli, site, recipes):
    """The second can't be applied, so the first is not either."""
    write_recipe(recipes, function="no_such_method")
    with unchanged(site):
        said = cli(*APPLY, site, "user-recipe", "--recipes", recipes)
    refused(said, 3, "LlamaModel.no_such_method", "nothing was written")


def test_options_go_to_the_recipe_that_knows_them(cli, site, recipes):
    write_recipe(recipes)
    both = (*APPLY, site, "user-recipe", "--recipes", recipes)
    said = cli(*both, "-O", "text=bye", "-O", "debug-logging:layers=3")
    assert said.code == 0, said.err
    assert "said = 'bye'" in (site / "sglang" / LLAMA).read_text()
    options = {
        one["name"]: one["options"]
        for one in cli("status", "--target", site, "--json").json["recipes"]
        if one["state"] == "APPLIED"
    }
    assert options == {"debug-logging": {"layers": "3"}, "user-recipe": {"text": "bye"}}


def test_a_recipe_that_is_not_needed_leaves_nothing_behind(cli, site, recipes):
    body = "from patchkit.recipe import NotNeeded\nraise NotNeeded('has it already')"
    write_recipe(recipes, body=body)
    said = cli("apply", "user-recipe", "--target", site, "--recipes", recipes)
    assert said.code == 0
    assert "nothing to do: this tree needs none of it" in said.out
    assert "has it already" in said.out
    assert not (site / ".patchkit").exists()


@pytest.mark.parametrize("name", ["debug-logging", "debug_logging"])
def test_revert_restores_every_byte(cli, site, patched, name):
    assert cli("revert", name, "--target", patched).code == 0
    assert snapshot(patched) == snapshot(site)
    with unchanged(patched):
        said = cli("revert", "--target", patched)
    assert said.code == 0
    assert "nothing is applied" in said.out


def test_revert_of_one_that_is_not_applied_changes_nothing(cli, patched, recipes):
    write_recipe(recipes)
    with unchanged(patched):
        said = cli("revert", "user-recipe", "--target", patched, "--recipes", recipes)
    assert said.code == 0
    assert "user-recipe" in said.out and "not applied" in said.out


def test_in_a_checkout_git_sees_only_the_edited_files(cli, checkout):
    said = cli(*APPLY, checkout)
    assert said.code == 0
    inside = [f"python/sglang/{path}" for path in sorted((*FILES, TAP + "/"))]
    status = git(checkout, "status", "--porcelain").splitlines()
    assert sorted(line[3:] for line in status) == sorted(inside)
    assert not list(checkout.rglob(".patchkit*"))
    diff = git(checkout, "diff")
    added = [x for x in diff.splitlines() if x[:1] == "+" and x[:3] != "+++"]
    removed = [x for x in diff.splitlines() if x[:1] == "-" and x[:3] != "---"]
    assert added and all(line.endswith("# patchkit: debug-logging") for line in added)
    assert removed == []
    assert cli("revert", "--target", checkout).code == 0
    assert git(checkout, "status", "--porcelain") == ""


def test_edits_that_a_recipe_did_not_look_at_are_named(cli, patched):
    file = patched / "sglang" / "srt" / "models" / "llama_eagle3.py"
    line = "        hidden_states = forward_batch.spec_info.hidden_states\n"
    text = file.read_text()
    assert text.count(line) == 1
    file.write_text(
        text.replace(line, line + '        print("h", hidden_states.shape)\n')
    )
    said = cli("apply", "remove-debug-logging", "--target", patched)
    assert said.code == 0
    told = " ".join(said.out.split())
    assert "looked at srt/models/llama_eagle3.py as it was before patchkit" in told
    cli("revert", "--target", patched)
    said = cli("apply", "remove-debug-logging", "--target", patched)
    assert "looked at" not in said.out
    assert file.read_bytes() == plain(text.encode())
