"""Writes docs/recipes/: one page for each recipe, from its docstring and its cases.

    python docs/recipe_pages.py

The example of a page is its shortest changing case, where ``EXAMPLES`` names no other.
``tests/test_docs.py`` fails if a page is not what this makes.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from patchkit.model import RecipeInfo
from patchkit.registry import Registry, tap_environment

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "recipes"
CASES = ROOT / "fixtures" / "cases"
EXAMPLES = {
    "gate-debug-logging": "llama_eagle3-bare_prints",
    "remove-debug-logging": "llama_eagle3-bare_prints",
}


def page(info: RecipeInfo) -> str:
    kind = (
        "Inserts whole marked lines only."
        if info.inserts_only
        else "Changes lines of SGLang's: only the journal can take it back."
    )
    parts = [f"# {info.name}", info.doc.strip(), f"{kind} Releases: {info.releases}."]
    parts.append(f"    patchkit apply {info.name} --target $SGLANG_DIR")
    if info.next_step:
        parts.append(f"Then: {info.next_step}.")
    options = [(f"`-O {one.name}={one.default}`", one.help) for one in info.options]
    parts += _table("Options and their defaults", options)
    parts += _table("Sites", [(f"`{name}`", text) for name, text in info.sites])
    variables = [*info.environment, *(tap_environment() if info.uses_tap else ())]
    parts += _table("Environment", [(f"`{name}`", text) for name, text in variables])
    if info.fixes:
        names = ", ".join(f"`{name.partition('[')[0]}`" for name in info.fixes)
        parts.append(f"`patchkit verify` holds it to {names}.")
    if info.after or info.excludes:
        parts.append(_neighbours(info))
    parts += ["## An example", f"```diff\n{_example(info)}```"]
    return "\n\n".join(parts) + "\n"


def _table(title: str, rows: list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    lines = [f"| {one} | {text} |" for one, text in rows]
    return [f"## {title}", "\n".join(["| | |", "|---|---|", *lines])]


def _neighbours(info: RecipeInfo) -> str:
    said = []
    if info.after:
        said.append(f"Goes behind {', '.join(info.after)}.")
    if info.excludes:
        said.append(f"Can't stand together with {', '.join(info.excludes)}.")
    return " ".join(said)


def _example(info: RecipeInfo) -> str:
    case = EXAMPLES.get(info.name, "*")
    changing = (CASES / info.name.replace("-", "_")).glob(f"{case}/after.py")
    after = min(changing, key=lambda path: (path.stat().st_size, path))
    before = after.with_name("before.py")
    old, new = (path.read_text().splitlines(keepends=True) for path in (before, after))
    lines = list(difflib.unified_diff(old, new, n=len(old)))
    return "".join(lines[3:])


def main() -> None:
    PAGES.mkdir(exist_ok=True)
    infos = Registry().all()
    for info in infos:
        (PAGES / f"{info.name}.md").write_text(page(info))
    for old in PAGES.glob("*.md"):
        if old.stem not in {info.name for info in infos}:
            old.unlink()


if __name__ == "__main__":
    main()
