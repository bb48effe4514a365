"""``--fix-names``: a copy of a checkpoint under other names. Never in place.

Data is streamed, files in which no name changes are hard-linked (copied, where the
file system can't). The copy is built in a folder beside its place and renamed into it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patchkit.draft.checkpoint import CONFIG, INDEX, Checkpoint
from patchkit.draft.header import parse_json, read_header
from patchkit.errors import Refused, UsageError

CHUNK = 8 << 20


def expect_room(out: Path, checkpoint_folder: Path) -> None:
    """Before anything is asked. Raises UsageError unless ``out`` can be made."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(
            f"--fix-names {out} is there already", hint="give a folder that is not"
        )
    if not out.parent.is_dir():
        raise UsageError(
            f"--fix-names {out}: there is no folder {out.parent}", hint="make it first"
        )
    inside, source = out.parent.resolve() / out.name, checkpoint_folder.resolve()
    if inside == source or source in inside.parents:
        raise UsageError(
            f"--fix-names {out} is inside of the checkpoint",
            hint="give a folder outside of it",
        )


def write_renamed(
    checkpoint: Checkpoint,
    renaming: Mapping[str, str],
    config: Mapping[str, Any] | None,
    out: Path,
) -> list[str]:
    """Write the copy; a line about each file. ``config``: a new config.json, ``None``
    to keep it. Raises Refused where that can't be done."""
    if checkpoint.bins:
        raise Refused(
            "names in a .bin can't be changed without loading it",
            hint="convert the checkpoint to safetensors first",
        )
    expect_room(out, checkpoint.folder)
    changed = {checkpoint.tensors[name].file for name in renaming}
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        told = []
        for file in sorted(checkpoint.folder.iterdir()):
            if not file.is_file():
                continue
            new = aside / file.name
            if file in changed:
                count = _copy_renamed(file, new, renaming)
                told.append(f"{file.name}: {count} tensors renamed")
            elif file.name == INDEX and renaming:
                _write(new, _index(file, renaming))
                told.append(f"{file.name}: the same names changed")
            elif file.name == CONFIG and config is not None:
                _write(new, json.dumps(config, indent=2).encode() + b"\n")
                told.append(f"{file.name}: as SGLang reads it")
            elif file.name == CONFIG:  # a finding may ask for an edit of it
                shutil.copyfile(file, new)
                told.append(f"{file.name}: copied")
            else:
                told.append(f"{file.name}: {_link(file, new)}")
        os.chmod(aside, 0o777 & ~_umask())
        if out.exists():
            out.rmdir()
        os.rename(aside, out)
    except OSError as problem:
        shutil.rmtree(aside, ignore_errors=True)
        raise Refused(
            f"{out} can't be written: {problem.strerror}", hint="is there room?"
        ) from None
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return told


def _copy_renamed(file: Path, new: Path, renaming: Mapping[str, str]) -> int:
    tensors, metadata = read_header(file)
    with open(file, "rb") as source, open(new, "wb") as target:
        length = int.from_bytes(source.read(8), "little")
        start = 8 + length
        header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        for one in tensors:
            header[renaming.get(one.name, one.name)] = {
                "dtype": one.dtype,
                "shape": list(one.shape),
                "data_offsets": [one.begin - start, one.end - start],
            }
        data = json.dumps(header, separators=(",", ":")).encode()
        data += b" " * (-len(data) % 8)  # tensors begin where they can be mapped
        target.write(len(data).to_bytes(8, "little") + data)
        source.seek(start)
        shutil.copyfileobj(source, target, CHUNK)
        target.flush()
        os.fsync(target.fileno())
    return sum(one.name in renaming for one in tensors)


def _index(file: Path, renaming: Mapping[str, str]) -> bytes:
    value = parse_json(file.read_bytes(), str(file))
    places = value["weight_map"]
    value["weight_map"] = {renaming.get(k, k): v for k, v in places.items()}
    return json.dumps(value, indent=2).encode() + b"\n"


def _write(file: Path, data: bytes) -> None:
    file.write_bytes(data)


def _link(file: Path, new: Path) -> str:
    source = file.resolve()  # a hub's cache links files to where they are
    try:
        os.link(source, new)
        return "linked"
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, new)
        return "copied"


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found
