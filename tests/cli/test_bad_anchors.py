"""Anchors that are gone, doubled, or share their line; edits that conflict."""

import pytest
from clikit import DEEPSEEK, LLAMA, LOGITS, edit, plain, refused, unchanged
from support import snapshot

APPLY = ("apply", "debug-logging", "--target")
GUARD = "        if hidden_states.shape[-1] != embeds.shape[-1]:\n"
FC = "            hidden_states = self.fc(hidden_states)\n"


def test_an_anchor_that_is_gone(cli, site):
    edit(
        site / "sglang" / LLAMA,
        GUARD,
        GUARD.replace("!=", "<").replace("shape", "size"),
    )
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(
        said, 3, LLAMA, "llama_eagle3.fc", "no width guard", "does not fit this tree"
    )
    assert "nearest: line " in said.err
    assert "if hidden_states.size[-1] < embeds.size[-1]:" in said.err


def test_anchors_gone_in_all_files_are_all_listed(cli, site):
    edit(site / "sglang" / LLAMA, GUARD, GUARD.replace("shape", "size"))
    edit(site / "sglang" / LOGITS, "class LogitsProcessor(", "class Processor(")
    data = (site / "sglang" / DEEPSEEK).read_bytes()
    name = b"class DeepseekV2ForCausalLM("
    assert data.count(name) == 1
    (site / "sglang" / DEEPSEEK).write_bytes(data.replace(name, b"class Other("))
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, LLAMA, LOGITS, DEEPSEEK)
    assert "DeepseekV2ForCausalLM.forward" in said.err
    assert "LogitsProcessor._get_hidden_states_to_store or forward" in said.err


def test_two_candidates_for_one_anchor(cli, site):
    edit(site / "sglang" / LLAMA, GUARD + FC, GUARD + FC + GUARD + FC)
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, LLAMA, "self.fc is called in 2 guarded places")


def test_a_method_defined_twice(cli, site):
    data = (site / "sglang" / LLAMA).read_text()
    start = data.index("class LlamaModel(")
    where = data.index("    def forward(", start)
    again = data[:where] + "    def forward(self):\n        pass\n\n" + data[where:]
    (site / "sglang" / LLAMA).write_text(again)
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, "LlamaModel.forward is defined twice")


@pytest.mark.parametrize("shape", ["suite", "semicolon"])
def test_an_anchor_that_shares_its_line(cli, site, shape):
    old = "            hidden_states, aux_hidden_states = hidden_states\n"
    start = "        if self.capture_aux_hidden_states:"
    unpack = old.strip()
    if shape == "suite":
        edit(site / "sglang" / DEEPSEEK, f"{start}\n{old}", f"{start} {unpack}\n")
    else:
        edit(
            site / "sglang" / DEEPSEEK,
            f"{start}\n{old}",
            f"{start}\n            x = 1; {unpack}\n",
        )
    with unchanged(site):
        said = cli(*APPLY, site)
    expected = "shares its line" if shape == "suite" else f"x = 1; {unpack}"
    refused(said, 3, f"{DEEPSEEK}:", "deepseek_v2.aux", expected)


def test_a_function_on_one_line(cli, site):
    file = site / "sglang" / LLAMA
    file.write_text("import os\nclass LlamaModel:\n    def forward(self): return 1\n")
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, LLAMA, "is on the line of its def")


def test_a_user_edit_may_break_the_anchor_later(cli, patched):
    """Composed from the originals, the patch still stands; the edit is kept."""
    edit(patched / "sglang" / LLAMA, "# idle batch", "# if self.fc: # idle batch")
    assert cli("reapply", "--target", patched).code == 0


# -- edits next to ours ----------------------------------------------------------------


def test_an_edit_of_our_own_line_conflicts_and_is_shown(cli, patched):
    edit(patched / "sglang" / LLAMA, '"llama_eagle3.fc_in",', '"my_site",')
    for command in (["revert"], ["apply", "debug-logging", "-O", "layers=all"]):
        if command[0] == "apply":  # llama_eagle3.py itself would not change
            continue
        with unchanged(patched):
            said = cli(*command, "--target", patched)
        refused(said, 3, LLAMA, "overlap", '"my_site",', "diff --drift")
        assert "<<<<<<<" in said.err and ">>>>>>>" in said.err


def test_an_edit_of_our_own_line_survives_an_apply_elsewhere(cli, patched):
    edit(patched / "sglang" / LLAMA, '"llama_eagle3.fc_in",', '"my_site",')
    assert (
        cli("apply", "debug-logging", "-O", "layers=all", "--target", patched).code == 0
    )
    assert '"my_site",' in (patched / "sglang" / LLAMA).read_text()


def test_conflicts_in_several_files_are_all_shown(cli, patched):
    edit(patched / "sglang" / LLAMA, '"llama_eagle3.fc_in",', '"one",')
    edit(patched / "sglang" / DEEPSEEK, '"deepseek_v2.aux",', '"two",')
    with unchanged(patched):
        said = cli("revert", "--target", patched)
    refused(said, 3, f"{DEEPSEEK}: ", f"{LLAMA}: ", '"one",', '"two",')


@pytest.mark.parametrize("where", ["above", "below"])
def test_an_edit_right_next_to_our_lines_reverts_cleanly(cli, patched, site, where):
    file = patched / "sglang" / LLAMA
    first = "        if patchkit_tap.ENABLED:  # patchkit: debug-logging\n"
    lines = file.read_text().splitlines(keepends=True)
    ours = [n for n, line in enumerate(lines) if "fc_in" in line]
    start = max(n for n in range(ours[0]) if lines[n] == first)
    stop = next(n for n in range(start, len(lines)) if "# patchkit" not in lines[n])
    mine = "        mine = 1\n"
    lines.insert(start if where == "above" else stop, mine)
    file.write_text("".join(lines))
    assert cli("revert", "--target", patched).code == 0
    assert file.read_bytes() == plain("".join(lines).encode())
    stock = (site / "sglang" / LLAMA).read_text().splitlines(keepends=True)
    now = file.read_text().splitlines(keepends=True)
    assert [line for line in now if line != mine] == stock


def test_edits_between_our_lines_revert_cleanly(cli, patched):
    """On the anchor itself, which stands between two blocks of ours."""
    edit(patched / "sglang" / LLAMA, GUARD, GUARD.replace(":\n", ":  # mine\n"))
    assert cli("revert", "--target", patched).code == 0
    assert "embeds.shape[-1]:  # mine" in (patched / "sglang" / LLAMA).read_text()


def test_lines_of_ours_taken_out_by_hand_do_not_stop_a_revert(cli, patched, site):
    """All of a block, then one line of another: only ours is missing."""
    file = patched / "sglang" / LLAMA
    lines = file.read_text().splitlines(keepends=True)
    (fc_in,) = [n for n, line in enumerate(lines) if '"llama_eagle3.fc_in"' in line]
    del lines[fc_in]
    file.write_text("".join(lines))
    assert cli("revert", "--target", patched).code == 0
    assert snapshot(patched) == snapshot(site)


def test_an_edit_that_breaks_the_syntax_is_refused_on_apply(cli, patched):
    edit(patched / "sglang" / DEEPSEEK, "# Adapted from:", "class class:")
    with unchanged(patched):
        said = cli("apply", "debug-logging", "-O", "layers=all", "--target", patched)
    refused(said, 3, DEEPSEEK, "not valid Python", "mend it")
    # but it must not keep anyone from getting rid of the patch
    assert cli("revert", "--target", patched).code == 0
    data = (patched / "sglang" / DEEPSEEK).read_bytes()
    assert b"class class:" in data and b"patchkit" not in data
