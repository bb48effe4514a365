"""The pair on disk. The only module of this package that reads or writes files.

OUT holds ``target/``, three drafts and ``canary.json``, which says what they are.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from patchkit.canary import code
from patchkit.canary.draft import STRICT, TOLERANT, draft_config, draft_tensors
from patchkit.canary.margins import Proof, prove
from patchkit.canary.plan import DRAFTS, DraftKind, Plan, make_plan
from patchkit.canary.target import MAX_POSITIONS, target_config, target_tensors
from patchkit.canary.tensors import Tensor, write_safetensors
from patchkit.errors import Refused, UsageError

Json = dict[str, Any]
MANIFEST = "canary.json"
#: Changes with the weights.
EDITION = 1


def write_pair(plan: Plan, out: Path) -> Proof:
    """All of it, in a folder beside ``out`` that is then renamed, once the arithmetic
    is proven.

    Raises UsageError unless ``out`` can be made, Refused if the disk says no, or if the
    dtype can't hold the pair.
    """
    if out.is_symlink() and not out.exists():
        raise UsageError(
            f"{out} is a link to {os.readlink(out)}, which is not there",
            hint="remove the link, or give another folder",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there already", hint="give a folder that is not")
    if not out.absolute().parent.is_dir():
        raise UsageError(
            f"{out}: there is no folder {out.parent}", hint="make it first"
        )
    target = target_tensors(plan)
    drafts = {name: _tensors(plan, one) for name, one in DRAFTS.items()}
    proof = prove(plan, target, drafts["draft"])
    try:
        above = out.absolute().parent
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=above))
    except OSError as problem:
        raise Refused(
            f"{above} can't be written to: {problem.strerror}",
            hint="give a folder in which files can be made",
        ) from None
    try:
        write_checkpoint(aside / "target", target_config(plan), target)
        for name, tensors in drafts.items():
            config = draft_config(plan, with_ids=DRAFTS[name].with_ids)
            write_checkpoint(aside / name, config, tensors)
        _write_json(aside / MANIFEST, manifest(plan))
        os.chmod(aside, 0o755)
        if out.exists():
            out.rmdir()
        os.rename(aside, out)
    except OSError as problem:
        shutil.rmtree(aside, ignore_errors=True)
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Refused(
            f"{out} can't be written: {problem.strerror}",
            hint="make room" if full else "give another folder",
        ) from None
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return proof


def _tensors(plan: Plan, draft: DraftKind) -> dict[str, Tensor]:
    back = STRICT if draft.strict else TOLERANT
    return draft_tensors(plan, draft.layers(plan), back=back)


def write_checkpoint(folder: Path, config: Json, tensors: Mapping[str, Tensor]) -> None:
    """In Hugging Face's layout, with the pair's tokenizer."""
    folder.mkdir()
    _write_json(folder / "config.json", config)
    _write_json(folder / "tokenizer.json", _tokenizer())
    _write_json(folder / "tokenizer_config.json", _TOKENIZER)
    write_safetensors(folder / "model.safetensors", tensors)


def manifest(plan: Plan) -> Json:
    return {
        "canary": EDITION,
        "plan": asdict(plan) | {"ids": list(plan.ids)},
        "layers": {name: list(one.layers(plan)) for name, one in DRAFTS.items()},
        "moduli": list(code.MODULI),
        "prompts": [code.counting(*one) for one in PROMPTS],
    }


#: First number and length of each prompt; apart by more than an answer is long.
PROMPTS = ((0, 3), (557, 9), (1204, 2), (1873, 33))


def read_pair(out: Path) -> Plan:
    """What the pair in ``out`` was made for. Raises Refused if it is none of ours."""
    file = out / MANIFEST
    again = "patchkit canary make OUT writes a new one"
    if not file.is_file():
        above = out.absolute().parent
        if (above / MANIFEST).is_file():
            again = f"give the folder above it, {above}"
        raise Refused(f"{out} is no pair: it has no {MANIFEST}", hint=again)
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise Refused(f"{file} can't be read: {problem}", hint=again) from None
    if not isinstance(value, dict) or not isinstance(value.get("plan"), dict):
        raise Refused(f"{file} says of no pair what it was made for", hint=again)
    if value.get("canary") != EDITION:
        edition = value.get("canary")
        raise Refused(f"{file} is of edition {edition}, not {EDITION}", hint=again)
    try:
        return make_plan(**value["plan"])
    except (TypeError, UsageError) as problem:
        raise Refused(f"{file}: no pair is made so: {problem}", hint=again) from None


def _tokenizer() -> Json:
    """Words are numbers: the text ``7 8 9`` is three tokens, and is continued so."""
    words = {"<pad>": code.PAD, "<eos>": code.EOS, "<unk>": 2}
    for token in range(3, code.VOCAB):
        counts = code.means_number(token)
        words[str(code.number_at(token)) if counts else f"x{token}"] = token
    special = [
        {
            "id": number,
            "content": word,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for word, number in list(words.items())[:3]
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }


_TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<pad>",
    "eos_token": "<eos>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "model_max_length": MAX_POSITIONS,
    "clean_up_tokenization_spaces": False,
}


def _write_json(file: Path, value: Json) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
