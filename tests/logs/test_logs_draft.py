"""Layer ids of a draft's config against what was captured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from logkit import found, round_

from patchkit.errors import PatchkitError
from patchkit.logs.draft import Draft, read_draft
from patchkit.logs.finding import ERROR, NOTE


def config(folder: Path, **values) -> Path:
    (folder / "config.json").write_text(json.dumps({"hidden_size": 64} | values))
    return folder


def ids(*layers: int, release: str | None = None) -> Draft:
    always = {None: None, "0.5.9": True, "0.5.15": False}[release]
    return Draft("config.json", layers, 64 * len(layers), "", always)


def captured(draft: Draft, *layers: int):
    """The finding about layer ids."""
    text = "".join(
        round_(step, layers=layers, norms=tuple(map(float, layers))) for step in (1, 2)
    ).replace("in_features=192", f"in_features={draft.fc_width}")
    findings = found(text, draft=draft)
    (one,) = [f for name, f in findings.items() if name.startswith("layer-ids")]
    return one


def test_ids_whose_first_is_1_mean_the_same_everywhere():
    finding = captured(ids(1, 29, 57), 2, 30, 58)
    assert (finding.severity, finding.name) == (NOTE, "layer-ids-fit")
    assert "0.5.12.post1" in finding.text and "0.5.13" in finding.text
    assert not finding.hint


@pytest.mark.parametrize(
    ("layers", "rule"), [((3, 21, 41), "always"), ((2, 20, 40), "0.5.13 on")]
)
def test_other_ids_fit_one_rule_and_it_is_named(layers, rule):
    finding = captured(ids(2, 20, 40), *layers)
    assert finding.severity == NOTE
    assert rule in finding.text
    assert "--release" in finding.hint


@pytest.mark.parametrize(
    ("release", "layers", "severity"),
    [
        ("0.5.9", (3, 21, 41), NOTE), ("0.5.9", (2, 20, 40), ERROR),
        ("0.5.15", (2, 20, 40), NOTE), ("0.5.15", (3, 21, 41), ERROR),
    ],
)  # fmt: skip
def test_a_release_fixes_the_rule(release, layers, severity):
    assert captured(ids(2, 20, 40, release=release), *layers).severity == severity


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        ((3, 31, 59), "All are a layer too late."),
        ((1, 29, 57), "All are a layer too early."),
        ((2, 20, 37), "default of a target of 40 layers"),
        ((2, 30), "2 instead of 3 states"),
    ],
)
def test_what_is_wrong_is_said(layers, text):
    finding = captured(ids(1, 29, 57), *layers)
    assert finding.severity == ERROR
    assert text in finding.text


def test_ids_out_of_order_are_captured_in_order():
    finding = captured(ids(57, 1, 29), 2, 30, 58)
    assert finding.severity == ERROR
    assert "ascending" in finding.title


def test_no_ids_mean_the_default():
    draft = Draft("config.json", None, 192, "")
    assert captured(draft, 2, 30, 58).severity == NOTE
    assert captured(draft, 2, 30, 56).severity == ERROR


def test_a_draft_of_other_widths():
    draft = Draft("config.json", (1, 29, 57), 21504, "3 states of 7168 columns")
    finding = found("".join(map(round_, (1, 2))), draft=draft)["widths"]
    assert "fc takes 192 columns, the draft's config says 21504" in finding.title


@pytest.mark.parametrize(
    ("values", "want", "width"),
    [
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}},
         (1, 29, 57), 192),
        ({"eagle_aux_hidden_state_layer_ids": [1, 9]}, (1, 9), 128),
        ({"eagle_config": {}, "target_hidden_size": 100}, None, 300),
        ({"eagle_config": None, "num_aux_hidden_states": 4}, None, 256),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": None}}, None, 192),
    ],
)  # fmt: skip
def test_where_ids_stand(tmp_path, values, want, width):
    for path in (config(tmp_path, **values), tmp_path / "config.json"):
        draft = read_draft(path, None)
        assert (draft.ids, draft.fc_width, draft.always) == (want, width, None)


@pytest.mark.parametrize("ids", ["1", ["abc"], [None, 1], [], 7])
def test_ids_that_are_none_are_refused(tmp_path, ids):
    folder = config(tmp_path, eagle_config={"eagle_aux_hidden_state_layer_ids": ids})
    with pytest.raises(PatchkitError, match="no list of layers"):
        read_draft(folder, None)


def test_releases(tmp_path):
    folder = config(tmp_path)
    assert read_draft(folder, "0.5.12.post1").always is True
    assert read_draft(folder, "v0.5.13").always is False
    with pytest.raises(PatchkitError, match="no version"):
        read_draft(folder, "latest")


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_a_config_that_is_none(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(PatchkitError) as raised:
        read_draft(tmp_path, None)
    assert raised.value.exit_code == 3
