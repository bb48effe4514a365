"""What recipe tests use: cases are files, so dropping a folder in adds a test.

``cases/<recipe>/<file>-<what>/`` holds ``before.py`` and either ``after.py`` (the
recipe changes it to this) or ``expect.txt`` (``STATUS: part of the reason``; the file
must not change). ``<file>`` names the target file, as in ``llama_eagle3-cast``;
``options.txt`` holds ``key=value`` lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from patchkit import engine
from patchkit.model import Status
from patchkit.recipe import Recipe
from patchkit.source import strip_marks


@dataclass(frozen=True)
class Case:
    name: str
    path: str
    before: bytes
    after: bytes | None
    status: Status
    reason: str
    options: Mapping[str, str]


def read_cases(folder: Path, recipe: type[Recipe]) -> list[Case]:
    """The cases below ``folder``. Raises ValueError for a folder that is no case."""
    found = []
    for one in sorted(path for path in folder.iterdir() if path.is_dir()):
        stem = one.name.partition("-")[0]
        files = recipe.files or recipe.edits
        paths = [p for p in files if PurePosixPath(p).stem == stem]
        if len(paths) != 1:
            raise ValueError(f"{one}: its name must start with a file of the recipe")
        options = one / "options.txt"
        pairs = options.read_text().split() if options.exists() else []
        after, expect = one / "after.py", one / "expect.txt"
        status, _, reason = (
            (expect.read_text() if expect.exists() else "CHANGED:")
            .strip()
            .partition(":")
        )
        found.append(
            Case(
                one.name,
                paths[0],
                (one / "before.py").read_bytes(),
                after.read_bytes() if after.exists() else None,
                Status(status),
                reason.strip(),
                dict(pair.split("=", 1) for pair in pairs),
            )
        )
    return found


#: The same case in another dress; the recipe must do the same.
VARIANTS: Mapping[str, Callable[[bytes], bytes]] = {
    "as it is": lambda data: data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "tabs": lambda data: b"".join(
        b"\t" * ((len(line) - len(line.lstrip(b" "))) // 4) + line.lstrip(b" ")
        for line in data.splitlines(keepends=True)
    ),
    "byte-order mark": lambda data: b"\xef\xbb\xbf" + data,
    "no final newline": lambda data: data.rstrip(b"\n"),
}


def check_case(recipe: type[Recipe], case: Case, variant: str) -> None:
    """Assert that the recipe does to this case what its files say, twice."""
    dress = VARIANTS[variant]
    before = dress(case.before)
    outcome = engine.apply(recipe, before, case.path, case.options)
    said = "; ".join(f"{s.name}: {s.status.value}: {s.detail}" for s in outcome.sites)
    assert outcome.status is case.status, said
    assert case.reason in said, said
    expected = before if case.after is None else dress(case.after)
    assert outcome.source == expected, outcome.source.decode()
    if recipe.inserts_only:
        assert strip_marks(outcome.source) == before
    if case.status is Status.CHANGED:
        again = engine.apply(recipe, outcome.source, case.path, case.options)
        # what a recipe removed it does not find again
        gone = () if recipe.inserts_only else (Status.NOT_NEEDED,)
        assert again.status in (Status.ALREADY_APPLIED, *gone)
        assert again.source == outcome.source
