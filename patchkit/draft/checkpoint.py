"""A checkpoint's folder: its config.json, and what tensors it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchkit.draft.header import Tensor, open_regular, parse_json, read_header
from patchkit.errors import Refused, UsageError

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
#: A config.json or an index is no bigger.
LARGEST = 64 << 20
#: In a checkpoint's folder, but none of its weights: as SGLang's loader leaves out.
_NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "consolidated")

Json = dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """``config``: config.json. ``bins``: the files whose tensors only torch can list;
    ``values``: those of the vocabulary maps in them, by name."""

    folder: Path
    config: Json
    tensors: Mapping[str, Tensor]
    bins: tuple[Path, ...] = ()
    values: Mapping[str, list[Any]] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """Those that hold tensors."""
        return list(dict.fromkeys(one.file for one in self.tensors.values()))

    def shape(self, name: str) -> tuple[int, ...] | None:
        found = self.tensors.get(name)
        return found.shape if found else None


def read_checkpoint(folder: Path) -> Checkpoint:
    """Raises UsageError where there is no such folder, Refused for one that holds no
    checkpoint, or a broken one."""
    if not folder.exists():
        raise UsageError(f"{folder}: there is no such folder", hint="give DRAFT_DIR")
    if not folder.is_dir():
        raise Refused(
            f"{folder} is a file", hint="give the folder of the draft checkpoint"
        )
    config = read_config(folder)
    index = folder / INDEX
    if index.exists():
        return Checkpoint(folder, config, _indexed(index))
    shards = _weights(folder, "*.safetensors")
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        for one in read_header(shard)[0]:
            if one.name in tensors:
                raise Refused(
                    f"{one.name} is in {tensors[one.name].file.name} and in"
                    f" {shard.name}, and no {INDEX} says which counts",
                    hint="leave one of the files out of the folder",
                )
            tensors[one.name] = one
    bins = () if shards else tuple(_weights(folder, "*.bin") + _weights(folder, "*.pt"))
    if not shards and not bins:
        raise Refused(
            f"{folder} holds no weights: no *.safetensors, *.bin or *.pt",
            hint="give the folder into which the checkpoint was downloaded",
        )
    if shards and not tensors:
        raise Refused(
            f"{shards[0]} holds no tensors", hint="download the checkpoint again"
        )
    return Checkpoint(folder, config, tensors, bins)


def read_config(place: Path) -> Json:
    """The config.json in a folder, or such a file by any name. Raises UsageError if
    there is nothing at ``place``, Refused for what is no configuration."""
    if not place.exists():
        raise UsageError(
            f"{place}: there is no such folder or file",
            hint="give the model's folder, or its config.json",
        )
    file = place / CONFIG if place.is_dir() else place
    if not file.exists():
        raise Refused(
            f"{place} has no {CONFIG}", hint="give the folder of a model as downloaded"
        )
    found = _json(file)
    if not isinstance(found, dict):
        raise Refused(
            f"{file} holds no JSON object", hint="give a model's own config.json"
        )
    return found


def _json(file: Path) -> Any:
    try:
        with open_regular(file) as opened:
            data = opened.read(LARGEST + 1)
    except OSError as problem:
        raise Refused(
            f"{file} can't be read: {problem.strerror}", hint="is it a plain file?"
        ) from None
    if len(data) > LARGEST:
        raise Refused(
            f"{file} has more than {LARGEST >> 20} MB", hint="is it the right file?"
        )
    return parse_json(data, str(file))


def _indexed(index: Path) -> dict[str, Tensor]:
    found = _json(index)
    places = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(places, dict) or not places:
        raise Refused(
            f"{index} has no weight_map", hint="download the checkpoint again"
        )
    for name in places.values():
        # a link in the folder may lead anywhere; a name in the index may not
        if not isinstance(name, str) or Path(name).name != name or "\0" in name:
            raise Refused(
                f"{index} names {str(name)[:80]!r}, which is no file beside it",
                hint="do not use this checkpoint unless you know where it is from",
            )
    names = list(dict.fromkeys(places.values()))
    missing = [name for name in names if not (index.parent / name).exists()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise Refused(
            f"{index} names {', '.join(missing[:3])}{more}, not in the folder",
            hint="download the missing files",
        )
    held = {
        name: {one.name: one for one in read_header(index.parent / name)[0]}
        for name in names
    }
    lost = [name for name, file in places.items() if name not in held[file]]
    if lost:
        raise Refused(
            f"{index} says that {lost[0][:80]} is in {places[lost[0]]}, which has it"
            f" not ({len(lost)} such)",
            hint="index and shards are of different checkpoints: download again",
        )
    return {name: held[file][name] for name, file in places.items()}


def _weights(folder: Path, pattern: str) -> list[Path]:
    return sorted(
        one for one in folder.glob(pattern) if not one.name.startswith(_NO_WEIGHTS)
    )
