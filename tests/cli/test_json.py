"""``--json`` of every command parses and has the keys that the docs name."""

import pytest
from clikit import FILES, process, write_recipe

TARGET = {"package", "layout", "sglang", "journal"}
CHANGE = {"action", "target", "headline", "changed", "written", "recipes", "files"}
CHANGE |= {"outcomes", "notes", "commit", "next"}
RECIPE = {"name", "version", "summary", "doc", "files", "options", "environment"}
RECIPE |= {"sites", "releases", "inserts_only", "origin", "path"}
RECIPE |= {"after", "excludes", "fixes"}


def test_list(cli):
    said = cli("list", "--json")
    assert [one["name"] for one in said.json]
    assert all(set(one) == RECIPE for one in said.json)


def test_show(cli):
    value = cli("show", "debug-logging", "--json").json
    assert set(value) == RECIPE
    assert sorted(value["files"]) == sorted(FILES)
    assert value["options"][0]["name"] == "layers"
    assert "EAGLE3_DEBUG" in [one["name"] for one in value["environment"]]


def test_status(cli, patched):
    value = cli("status", "--target", patched, "--json").json
    assert {"target", "imported", "is_imported", "recipes"} <= set(value)
    assert set(value["target"]) == TARGET
    assert value["target"]["sglang"] == "0.5.9"
    (recipe,) = (one for one in value["recipes"] if one["name"] == "debug-logging")
    assert set(recipe) == {"name", "version", "options", "state", "detail", "files"}
    assert {"path": FILES[0], "state": "APPLIED"} in recipe["files"]


def test_apply_reapply_and_revert(cli, site):
    for command in (["apply", "debug-logging"], ["reapply"], ["revert"]):
        said = cli(*command, "--target", site, "--json")
        assert said.code == 0
        assert said.err == ""
        value = said.json
        assert set(value) == CHANGE
        assert value["action"] == command[0]
        assert value["written"] is (command[0] != "reapply")
        if value["written"]:
            found = {one["path"]: one for one in value["files"]}
            assert set(FILES) <= set(found)
            assert found[FILES[0]]["change"] == "changed"


def test_dry_run_has_the_diff(cli, site):
    said = cli("apply", "debug-logging", "--target", site, "--dry-run", "--json")
    assert set(said.json) == CHANGE | {"diff"}
    assert said.json["written"] is False and said.json["changed"] is True
    assert said.json["diff"].startswith("diff --git")


def test_check_answers_no_in_json_too(cli, site):
    said = cli("apply", "debug-logging", "--target", site, "--check", "--json")
    assert said.code == 1
    assert said.json["changed"] is True


def test_diff_export_and_log(cli, patched, tmp_path):
    diff = cli("diff", "--target", patched, "--json").json
    assert set(diff) == {"diff"}
    out = tmp_path / "my.patch"
    export = cli("export", "--target", patched, "-o", out, "--json").json
    assert export["output"] == str(out)
    assert export["diff"] == diff["diff"] == out.read_text()
    (entry,) = cli("log", "--target", patched, "--json").json
    assert set(entry) == {"commit", "time", "when", "what", "trailers"}
    assert ["Patchkit-Recipe", "debug-logging"] in entry["trailers"]


def test_fetch(cli, tmp_path, stock_wheel):
    value = cli("fetch", stock_wheel, "--into", tmp_path / "x", "--json").json
    assert value["version"] == stock_wheel
    assert value["folder"] == str(tmp_path / "x")
    assert value["wheel"].endswith(".whl")


@pytest.mark.parametrize(
    ("code", "command"),
    [
        (2, ["show", "no-such-recipe"]),
        (2, ["status", "--no-such-option"]),
        (2, ["no-such-command"]),
        (2, ["status", "--target", "/nonexistent"]),
        (3, ["status", "--target", "/"]),
        (2, ["export", "-o"]),
    ],
)
def test_errors_are_json_on_stdout(cli, code, command):
    said = cli(*command, "--json")
    assert said.code == code
    error = said.json["error"]
    assert set(error) == {"message", "hint", "details", "exit_code"}
    assert error["message"] and error["exit_code"] == code
    assert said.err == ""


def test_json_does_not_mix_with_a_recipe_that_prints(site, recipes):
    body = "print('hello')\nreturn insert_first(function, build)"
    write_recipe(recipes, body=body)
    command = ("apply", "user-recipe", "--recipes", recipes, "--target", site)
    assert process(*command, "--json").json["written"] is True
