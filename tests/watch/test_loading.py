"""How much of a checkpoint a process has: by its own open files and maps."""

from __future__ import annotations

import mmap
import os

import pytest

from patchkit.watch.loading import Loading, is_weights, read_checkpoint

MB = 1 << 20


@pytest.fixture
def checkpoint(tmp_path):
    for number in (1, 2, 3):
        name = f"model-0000{number}-of-00003.safetensors"
        (tmp_path / name).write_bytes(b"x" * MB)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "training_args.bin").write_bytes(b"y" * 100)
    return sorted(tmp_path.glob("*.safetensors"))


def look(loading):
    return loading.look([os.getpid()]).get(os.getpid())


def test_nothing_is_open():
    loading = Loading()
    assert look(loading) is None and loading.checkpoint is None


def test_a_mapped_file_counts_as_far_as_it_is_in_memory(checkpoint):
    loading = Loading()
    with open(checkpoint[1], "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    with mapped:
        assert look(loading) < MB
        assert loading.checkpoint.size == 3 * MB
        for at in range(0, MB, 4096):
            mapped[at]
        assert look(loading) == MB
    # it has let go of it, and still has what it had
    assert look(loading) == MB


def test_files_in_any_order(checkpoint):
    loading = Loading()
    with open(checkpoint[2], "rb", buffering=0) as file:
        file.read(1000)
        assert look(loading) == 1000
    with open(checkpoint[0], "rb", buffering=0) as file:
        file.read(10)
        # of the other it is through
        assert look(loading) == MB + 10


def test_a_file_that_is_read_counts_as_far_as_it_was(checkpoint):
    loading = Loading()
    with open(checkpoint[0], "rb", buffering=0) as file:
        file.read(300_000)
        assert look(loading) == 300_000


def test_the_next_checkpoint_is_the_one_at_hand(checkpoint, tmp_path):
    loading, draft = Loading(), tmp_path / "draft"
    draft.mkdir()
    (draft / "model.safetensors").write_bytes(b"z" * 500)
    with open(checkpoint[2], "rb"):
        look(loading)
    with open(draft / "model.safetensors", "rb"):
        assert look(loading) == 0
        assert (loading.checkpoint.folder, loading.checkpoint.size) == (str(draft), 500)


def test_another_users_process_is_nothing_to_fall_over():
    loading = Loading()
    assert loading.look([1, 2**22 + 1]) == {}


@pytest.mark.parametrize(
    ("path", "yes"),
    [
        ("/models/m/model-00001-of-00002.safetensors", True),
        ("/models/m/pytorch_model.bin", True),
        ("/models/m/x.gguf", True),
        ("/v/lib/python3.11/site-packages/torch/x.pt", False),
        ("/models/m/config.json", False),
        ("/models/m/model.safetensors (deleted)", False),
    ],
)
def test_what_is_a_weights_file(path, yes):
    assert is_weights(path) is yes


def test_safetensors_are_preferred_and_come_in_their_order(checkpoint):
    found = read_checkpoint(checkpoint[0].parent)
    assert list(found.files) == [path.name for path in checkpoint]
