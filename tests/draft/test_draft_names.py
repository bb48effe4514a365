"""Other names for tensors, and the copy that has them. No torch."""

from __future__ import annotations

import json
import os

import pytest

from patchkit.draft import names
from patchkit.draft.checkpoint import INDEX, read_checkpoint
from patchkit.draft.header import read_header
from patchkit.draft.renamed import expect_room, write_renamed
from patchkit.errors import Refused, UsageError
from patchkit.fixtures import drafts

LAYER = {"layers.0.": "midlayer."}


def renaming(checkpoint):
    return {
        name: name.replace("layers.0.", "midlayer.")
        for name in checkpoint.tensors
        if "layers.0." in name
    }


def layers_0():
    return drafts.sglang().rename(lambda name: name.replace("midlayer.", "layers.0."))


def test_the_first_candidate_changes_nothing():
    found = names.candidates(["layers.0.a", "fc.weight"])
    assert found[0] == {}
    assert {"layers.0.a": "midlayer.a"} in found


def test_two_rules_are_tried_together():
    found = names.candidates(["model.layers.0.a", "model.fc.weight"])
    wanted = {"model.layers.0.a": "midlayer.a", "model.fc.weight": "fc.weight"}
    assert wanted in found


def test_no_candidate_makes_two_names_one():
    both = ["layers.0.a", "midlayer.a"]
    assert all(
        len({one.get(n, n) for n in both}) == 2 for one in names.candidates(both)
    )


def test_a_name_is_changed_where_a_part_begins():
    found = names.candidates(["mylayers.0.a"])
    assert found == [{}]


def test_many_renamings_are_few_lines():
    told = names.shown({"layers.0.a.weight": "midlayer.a.weight",
                        "layers.0.b.weight": "midlayer.b.weight",
                        "fusion": "fc"})  # fmt: skip
    assert told == ["layers.0.* -> midlayer.*", "fusion -> fc"]


@pytest.mark.parametrize("shards", [1, 3])
def test_a_copy_has_other_names_and_the_same_bytes(shards, tmp_path):
    source = read_checkpoint(layers_0().write(tmp_path / "draft", shards=shards))
    before = {one.name: one.read_bytes() for one in source.folder.iterdir()}
    out = tmp_path / "out"
    write_renamed(source, renaming(source), None, out)
    copy = read_checkpoint(out)
    wanted = {renaming(source).get(n, n): t for n, t in source.tensors.items()}
    assert copy.tensors.keys() == wanted.keys()
    for name, one in copy.tensors.items():
        theirs = wanted[name]
        assert (one.dtype, one.shape) == (theirs.dtype, theirs.shape)
        assert (
            one.file.read_bytes()[one.begin : one.end]
            == (theirs.file.read_bytes()[theirs.begin : theirs.end])
        )
        assert one.begin % 8 == 0 or one.end - one.begin < 1024
    assert before == {one.name: one.read_bytes() for one in source.folder.iterdir()}
    assert read_header(copy.files[0])[1] == {"format": "pt"}
    if shards > 1:
        index = json.loads((out / INDEX).read_text())["weight_map"]
        assert set(index) == set(copy.tensors)


def test_files_without_a_changed_name_are_linked(tmp_path):
    folder = layers_0().write(tmp_path / "draft", shards=16)
    source = read_checkpoint(folder)
    out = tmp_path / "out"
    told = write_renamed(source, renaming(source), None, out)
    same = {one.name for one in out.iterdir() if (folder / one.name).samefile(one)}
    assert "config.json" not in same  # a finding may ask for an edit of it
    assert source.tensors["fc.weight"].file.name in same
    assert source.tensors["layers.0.hidden_norm.weight"].file.name not in same
    assert any("linked" in one for one in told)


def test_where_there_are_no_links_files_are_copied(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    source = read_checkpoint(layers_0().write(tmp_path / "draft"))
    told = write_renamed(source, renaming(source), None, tmp_path / "out")
    assert "config.json: copied" in told
    text = (tmp_path / "out" / "config.json").read_text()
    assert text == (source.folder / "config.json").read_text()


@pytest.mark.parametrize("where", ["draft", "draft/below", "draft/../draft"])
def test_never_in_place(where, tmp_path):
    source = read_checkpoint(layers_0().write(tmp_path / "draft"))
    with pytest.raises(UsageError):
        expect_room(tmp_path / where, source.folder)
    with pytest.raises(UsageError):
        write_renamed(source, renaming(source), None, tmp_path / where)


def test_nothing_is_left_of_a_copy_that_fails(tmp_path, monkeypatch):
    source = read_checkpoint(layers_0().write(tmp_path / "draft"))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(Refused, match="No space left"):
        write_renamed(source, renaming(source), None, tmp_path / "out")
    assert [one.name for one in tmp_path.iterdir()] == ["draft"]


def test_a_bin_is_not_renamed(tmp_path):
    folder = layers_0().write(tmp_path / "draft")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    source = read_checkpoint(folder)
    with pytest.raises(Refused, match="without loading"):
        write_renamed(source, {}, None, tmp_path / "out")
