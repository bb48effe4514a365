"""Reading checkpoints: what is whole, and everything that is not. No torch."""

from __future__ import annotations

import json
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.draft.checkpoint import INDEX, read_checkpoint, read_config
from patchkit.draft.formats import flattened, layer_ids, recognise
from patchkit.draft.header import read_header
from patchkit.draft.maps import find_map
from patchkit.errors import PatchkitError, Refused, UsageError
from patchkit.fixtures import drafts
from patchkit.fixtures.drafts import Values, pack


@pytest.mark.parametrize("kind", drafts.KINDS)
def test_formats_are_told_apart(kind, tmp_path):
    read = read_checkpoint(drafts.KINDS[kind]().write(tmp_path / kind))
    found = recognise(read.config, read.tensors)
    wanted = {"original": "eagle3-original", "kimi": "kimi-mla", "narrow": "sglang"}
    assert found.name == wanted.get(kind, kind)


def test_shards_are_one_checkpoint(tmp_path):
    draft = drafts.sglang()
    one = read_checkpoint(draft.write(tmp_path / "one"))
    several = read_checkpoint(draft.write(tmp_path / "several", shards=3))
    assert {n: t.shape for n, t in one.tensors.items()} == {
        n: several.tensors[n].shape for n in one.tensors
    }
    assert len(several.files) == 3
    for name in ("d2t", "t2d"):
        assert list(find_map(one, name).values) == list(find_map(several, name).values)


@pytest.mark.parametrize("dtype", ["I64", "I32", "F32", "F64", "BF16", "BOOL", "U8"])
def test_maps_of_every_dtype_are_read(dtype, tmp_path):
    draft = drafts.sglang()
    draft.tensors["model.d2t"] = Values(dtype, (4,), (0, 1, 1, 0))
    del draft.tensors["d2t"]
    read = read_checkpoint(draft.write(tmp_path))
    assert [float(one) for one in find_map(read, "d2t").values] == [0, 1, 1, 0]


def test_a_speculators_config_is_flattened(tmp_path):
    config = drafts.speculators().config
    found = flattened(config, recognise(config, ["layers.0.hidden_norm.weight"]))
    assert found["hidden_size"] == 64
    assert found["draft_vocab_size"] == 64
    assert found["architectures"] == ["LlamaForCausalLMEagle3"]
    # in front of layers 2, 4 and 5 is behind 1, 3 and 4
    assert layer_ids(found).ids == [1, 3, 4]
    assert "target_hidden_size" not in found


# -- what is broken -----------------------------------------------------------------


def header(**changes):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return {"a": {k: v for k, v in entry.items() if v is not None}}


def packed(value, body=b"\0" * 8, length=None):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(data) if length is None else length) + data + body


BROKEN = {
    "nothing": b"",
    "few bytes": b"abc",
    "a page of text": b"<html>404 not found</html>" * 4,
    "an LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "header longer than the file": packed({}, length=1 << 40),
    "header of no bytes": b"\0" * 64,
    "header that is no JSON": packed(b"{oops"),
    "header that is no text": packed(b"\xff\xfe\x00{}"),
    "header that is a list": packed([1, 2]),
    "deep header": packed(b"[" * 100_000),
    "no dtype": packed(header(dtype=None)),
    "no shape": packed(header(shape=None)),
    "unknown dtype": packed(header(dtype="F31")),
    "dtype of a number": packed(header(dtype=[1])),
    "negative shape": packed(header(shape=[-2])),
    "shape of text": packed(header(shape="2")),
    "shape of truth": packed(header(shape=[True, 2])),
    "huge shape": packed(header(shape=[1 << 62, 1 << 62])),
    "offsets of one number": packed(header(data_offsets=[0])),
    "offsets of text": packed(header(data_offsets=["0", "8"])),
    "offsets backwards": packed(header(data_offsets=[8, 0])),
    "offsets behind the end": packed(header(data_offsets=[1 << 50, (1 << 50) + 8])),
    "data cut off": packed(header(), body=b"\0" * 4),
    "an entry that is a number": packed({"a": 1}),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused(what, tmp_path):
    draft = drafts.sglang().write(tmp_path)
    (draft / "model.safetensors").write_bytes(BROKEN[what])
    with pytest.raises(Refused) as caught:
        read_checkpoint(draft)
    assert caught.value.exit_code == 3
    assert "model.safetensors" in caught.value.message
    assert caught.value.hint


WHOLE = pack(drafts.sglang().tensors)[:4000]


@settings(max_examples=200)
@given(st.data())
def test_no_change_of_bytes_is_a_traceback(tmp_path_factory, data):
    """A file in which bytes are changed, cut out or put in is read or refused."""
    whole = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, min(len(whole) - 1, 2400)))
        what = data.draw(st.sampled_from(("change", "cut", "insert")))
        if what == "change":
            whole[at] = data.draw(st.integers(0, 255))
        elif what == "cut":
            del whole[at : at + data.draw(st.integers(1, 50))]
        else:
            whole[at:at] = data.draw(st.binary(max_size=20))
    file = tmp_path_factory.mktemp("fuzz") / "model.safetensors"
    file.write_bytes(bytes(whole))
    try:
        read_header(file)
    except Refused as problem:
        assert problem.hint


@settings(max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=8), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_no_header_is_a_traceback(tmp_path_factory, value):
    file = tmp_path_factory.mktemp("fuzz") / "model.safetensors"
    for one in (value, {"a": value}, {"a": {"dtype": "F32", "shape": value}},
                header(shape=value), header(data_offsets=value)):  # fmt: skip
        file.write_bytes(packed(one))
        try:
            read_header(file)
        except Refused as problem:
            assert problem.hint


@pytest.mark.parametrize(
    "config",
    [b"", b"not json", b"[]", b"3", b'"x"', b"\xff\xff", b"{" * 50_000, b'{"a": }'],
)
def test_a_config_that_is_none_is_refused(config, tmp_path):
    draft = drafts.sglang().write(tmp_path)
    (draft / "config.json").write_bytes(config)
    with pytest.raises(Refused, match=r"config\.json"):
        read_checkpoint(draft)


def indexed(folder, value):
    drafts.sglang().write(folder, shards=2)
    text = value if isinstance(value, str) else json.dumps(value)
    (folder / INDEX).write_text(text)
    return folder


@pytest.mark.parametrize(
    "index",
    [
        "not json",
        [],
        {},
        {"weight_map": []},
        {"weight_map": {}},
        {"weight_map": {"a": 1}},
        {"weight_map": {"a": "missing.safetensors"}},
        {"weight_map": {"a": "../../etc/passwd"}},
        {"weight_map": {"a": "/etc/passwd"}},
        {"weight_map": {"a": ".."}},
        {"weight_map": {"a": ""}},
        {"weight_map": {"a": "x\0y"}},
        {"weight_map": {"no-such": "model-00001-of-00002.safetensors"}},
        {"weight_map": {"a": ["model-00001-of-00002.safetensors"]}},
    ],
)
def test_an_index_that_lies_is_refused(index, tmp_path):
    with pytest.raises(Refused) as caught:
        read_checkpoint(indexed(tmp_path, index))
    assert caught.value.hint


def test_nothing_outside_of_the_folder_is_opened(tmp_path, monkeypatch):
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes(pack({"a": Values("F32", (1,), (1.0,))}))
    folder = indexed(tmp_path / "draft", {"weight_map": {"a": "../secret.safetensors"}})
    opened, real = [], open

    def watched(file, *arguments, **options):
        opened.append(file)
        return real(file, *arguments, **options)

    monkeypatch.setattr("builtins.open", watched)
    with pytest.raises(Refused, match="no file beside it"):
        read_checkpoint(folder)
    assert secret not in opened


def test_links_are_followed(tmp_path):
    """As in a hub's cache, whose snapshots are links to blobs."""
    blobs = drafts.sglang().write(tmp_path / "blobs")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(file)
    assert (
        read_checkpoint(snapshot).tensors.keys()
        == read_checkpoint(blobs).tensors.keys()
    )


def test_a_hundred_gigabytes_of_zeros_are_refused_at_once(tmp_path):
    draft = drafts.sglang().write(tmp_path)
    with open(draft / "model.safetensors", "wb") as file:
        os.truncate(file.fileno(), 100 << 30)
    with pytest.raises(Refused, match="0 bytes"):
        read_checkpoint(draft)


def test_a_pipe_is_not_read(tmp_path):
    draft = drafts.sglang().write(tmp_path)
    (draft / "model.safetensors").unlink()
    os.mkfifo(draft / "model.safetensors")
    with pytest.raises(Refused, match="no file"):
        read_checkpoint(draft)


def test_an_empty_folder_and_a_missing_one(tmp_path):
    with pytest.raises(Refused, match=r"config\.json"):
        read_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Refused, match="no weights"):
        read_checkpoint(tmp_path)
    with pytest.raises(UsageError):
        read_checkpoint(tmp_path / "none")
    with pytest.raises(PatchkitError):
        read_config(tmp_path / "none")


def test_the_same_tensor_twice_is_refused(tmp_path):
    draft = drafts.sglang().write(tmp_path)
    data = (draft / "model.safetensors").read_bytes()
    (draft / "model-copy.safetensors").write_bytes(data)
    with pytest.raises(Refused, match="which counts"):
        read_checkpoint(draft)
