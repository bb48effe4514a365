"""How each file stands against what the journal last recorded."""

from __future__ import annotations

import base64
import csv
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from patchkit.journal.checkout import Checkout, was_committed
from patchkit.journal.state import FileRecord, digest
from patchkit.model import TAP_FOLDER, FileState, Target
from patchkit.source import mark_names, strip_marks

TAP_HEADER = b"# patchkit: tap"
TAP_NAME = TAP_FOLDER.rpartition("/")[2].encode()


@dataclass(frozen=True)
class Standing:
    """A file now. ``original``: the bytes to take as the new original, if not the
    recorded one (the tree was replaced, or carries marks without a journal)."""

    state: FileState
    data: bytes | None
    original: bytes | None = None
    fresh: bool = False


@dataclass(frozen=True)
class Prover:
    """Proves that bytes are a release's or a commit's own, for one target."""

    target: Target
    checkout: Checkout | None

    def pristine(self, path: str, data: bytes) -> bool:
        """By the wheel's RECORD, or by the checkout's history."""
        if self.checkout is not None:
            inside = f"{self.target.prefix}/{path}"
            if was_committed(self.checkout, inside, data):
                return True
        return any(
            known == data_hash(data)
            for known in recorded_hashes(self.target.package, path)
        )


def data_hash(data: bytes) -> str:
    """As a wheel's RECORD writes it (PEP 376)."""
    value = base64.urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={value}"


def recorded_hashes(package: Path, path: str) -> list[str]:
    """What the RECORD files beside the package say of ``sglang/<path>``."""
    found = []
    for record in package.parent.glob("sglang-*.dist-info/RECORD"):
        with open(record, newline="", encoding="utf-8", errors="replace") as file:
            for row in csv.reader(file):
                if len(row) >= 2 and row[0] == f"{package.name}/{path}":
                    found.append(row[1])
    return found


def stand(
    path: str,
    data: bytes | None,
    record: FileRecord | None,
    prover: Prover,
    other_version: bool,
    only_marks: bool,
) -> Standing:
    """Where the file ``path`` stands; reads the RECORD or asks git only if needed.

    ``other_version``: the tree no longer is the version that the journal recorded.
    ``only_marks``: all that patchkit did to the file is to add marked lines.
    """
    if record is None or not record.recipes:
        return _without_record(path, data, record, prover)
    now = digest(data)
    if now == record.patched:
        return Standing(FileState.APPLIED, data)
    if now == record.original:
        return Standing(FileState.OVERWRITTEN, data)
    if data is None:
        return Standing(FileState.MISSING, data)
    if now == record.written:
        # edits that an apply has merged are still the user's
        return Standing(FileState.DRIFTED, data)
    if path.startswith(TAP_FOLDER + "/"):
        return Standing(FileState.DRIFTED, data)
    plain = strip_marks(data)
    if digest(plain) == record.original:
        return Standing(FileState.DRIFTED, data)
    if prover.pristine(path, plain):
        return Standing(FileState.REPLACED, data, plain, fresh=True)
    unmarked = plain == data and record.original is not None and TAP_NAME not in data
    if unmarked and only_marks:
        # nothing of ours is left in it: the user's file, whatever it was before
        state = FileState.REPLACED if other_version else FileState.OVERWRITTEN
        return Standing(state, data, data, fresh=True)
    return Standing(FileState.DRIFTED, data)


def _without_record(
    path: str, data: bytes | None, record: FileRecord | None, prover: Prover
) -> Standing:
    if data is None:
        return Standing(FileState.NOT_APPLIED, None)
    if path.startswith(TAP_FOLDER + "/"):
        # ours by its header; a stranger's file of that name has none
        ours = data.startswith(TAP_HEADER)
        state = FileState.FOREIGN if ours else FileState.DRIFTED
        return Standing(state, data, None, fresh=ours)
    if not mark_names(data):
        return Standing(FileState.NOT_APPLIED, data)
    plain = strip_marks(data)
    # the journal of an earlier apply knows the original as well as a RECORD does
    known = record is not None and record.original == digest(plain)
    proven = known or prover.pristine(path, plain)
    return Standing(FileState.FOREIGN, data, plain if proven else None, fresh=proven)
