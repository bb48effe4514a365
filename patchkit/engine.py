"""apply(recipe, source) -> Outcome. Pure: no files, no git, no click, no printing.

Only what a recipe touches is re-printed: anchors are located with ``ast``, LibCST is
handed one method or one import, and every byte outside is unchanged by construction
(LibCST is not always lossless; it drops a blank line in ``x = 1\\n\\n   \\n``).
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import libcst as cst
from libcst.codemod import CodemodContext

from patchkit.model import Outcome, Site, Status
from patchkit.recipe import (
    BadOption,
    Constants,
    Edit,
    EditsText,
    Import,
    Members,
    Method,
    Recipe,
    Unmatched,
)
from patchkit.slices import Span, by_scope, indentation, locate
from patchkit.source import BadSource, Text, decode, physical_lines, strip_marks

_HEADER = "class _:"


def check_options(recipe: type[Recipe], options: Mapping[str, str]) -> str:
    """Why these options make no sense, or nothing."""
    try:
        recipe(CodemodContext(), **options)
    except BadOption as problem:
        return str(problem)
    return ""


def apply(
    recipe: type[Recipe],
    source: bytes,
    path: str,
    options: Mapping[str, str] | None = None,
    surroundings: Mapping[str, bytes] | None = None,
) -> Outcome:
    """What ``recipe`` makes of the file ``path`` (relative to the sglang package).

    ``surroundings``: the files that the recipe ``looks_at``, by path. Never raises for
    bad input: an unreadable file, an anchor that is gone, a recipe that raises or
    returns broken code are all REFUSED or ANCHOR_MISSING outcomes whose ``source`` is
    the one given.
    """
    name = recipe.recipe_name()
    run = partial(_run, recipe, dict(options or {}), dict(surroundings or {}), path)

    def refused(site: str, detail: str, nearest: str = "") -> Outcome:
        found = Site(site, Status.REFUSED, 0, detail, nearest)
        return Outcome(name, path, Status.REFUSED, source, (found,))

    try:
        before = strip_marks(source, name) if recipe.inserts_only else source
        text = decode(before)
        tree = ast.parse(text.text)
    except BadSource as problem:
        return refused("file", str(problem))
    except SyntaxError as problem:
        where = f"line {problem.lineno}: " if problem.lineno else ""
        shown = (problem.text or "").strip()
        return refused("file", f"{where}not valid Python: {problem.msg}", shown)
    try:
        after, sites = run(text, tree)
    except (BadOption, BadSource) as problem:
        return refused(
            "options" if isinstance(problem, BadOption) else "file", str(problem)
        )
    except (Exception, SystemExit) as problem:  # a recipe is a user's code
        kind = type(problem).__name__
        return refused("recipe", f"the recipe raised {kind}: {problem}")
    if any(site.status.failed for site in sites):
        status = (
            Status.REFUSED
            if any(site.status is Status.REFUSED for site in sites)
            else Status.ANCHOR_MISSING
        )
        return Outcome(name, path, status, source, sites)
    broken = _check(recipe, run, text, tree, before, after)
    if broken:
        return refused("recipe", broken)
    if all(site.status is Status.NOT_NEEDED for site in sites) and after == before:
        status = Status.NOT_NEEDED
    elif after == source:
        status = Status.ALREADY_APPLIED
    else:
        status = Status.CHANGED
    return Outcome(name, path, status, after, sites)


def _check(
    recipe: type[Recipe],
    run: Callable[[Text, ast.Module], tuple[bytes, Sequence[Site]]],
    text: Text,
    tree: ast.Module,
    before: bytes,
    after: bytes,
) -> str:
    """Why the result must not be written, or nothing. ``tree``: that of ``before``."""
    if after == before:
        return ""
    name = recipe.recipe_name()
    if recipe.inserts_only and strip_marks(after, name) != before:
        return "the recipe changed lines that it did not mark"
    try:
        compile(decode(after).text, name, "exec", dont_inherit=True)
        if not recipe.inserts_only:
            text = decode(after)
            tree = ast.parse(text.text)
    except (BadSource, SyntaxError, ValueError) as problem:
        return f"the recipe returned code that does not compile: {problem}"
    try:
        # an inserting recipe's own marks are stripped before it runs, so that its
        # second run starts from ``before`` too
        again, _ = run(text, tree)
    except (Exception, SystemExit) as problem:
        return f"the recipe fails on its own result: {problem}"
    if again != after:
        return "the recipe is not idempotent: a second run changes the file again"
    return ""


def _run(
    recipe: type[Recipe],
    options: Mapping[str, str],
    surroundings: Mapping[str, bytes],
    path: str,
    text: Text,
    tree: ast.Module,
) -> tuple[bytes, tuple[Site, ...]]:
    instance = recipe(CodemodContext(filename=path), **options)
    instance.surroundings = surroundings
    edits = instance.edits_for(path)
    if not edits:
        return _whole_file(instance, text)
    # bytes of the body in its own encoding; physical lines are ast's lines
    lines = physical_lines(text.text.encode("utf-8"))
    changes: list[tuple[Span, bytes]] = []
    sites: list[Site] = []
    for members in by_scope(edits):
        try:
            span = locate(tree, members[0], lines)
        except Unmatched as problem:
            sites += [_site(one.site, problem, lines, None) for one in members]
            continue
        first = members[0]
        if isinstance(first, (Import, Constants)):
            instance.indent = indentation(tree, lines)
            try:
                code = instance.marked(instance.top_level_lines(first))
            except Unmatched as problem:
                sites.append(_site(first.site, problem, lines, None))
                continue
            new = _new_lines(code, text, lines, span.start)
            sites.append(Site(first.site, Status.CHANGED, span.start + 1))
            changes.append((span, new))
            continue
        piece = b"".join(lines[span.start : span.stop]).decode("utf-8")
        done, found = _edit_slice(instance, members, piece, span, lines, text.newline)
        sites += found
        if done != piece:
            changes.append((span, done.encode("utf-8")))
    if any(site.status.failed for site in sites):
        return text.encode(text.text), tuple(sites)
    # from the last line to the first; of two at one place, the first stays first
    for span, new in sorted(changes[::-1], key=lambda change: -change[0].start):
        lines[span.start : span.stop] = [new]
    return text.encode(b"".join(lines).decode("utf-8")), tuple(sites)


def _whole_file(instance: Recipe, text: Text) -> tuple[bytes, tuple[Site, ...]]:
    """A recipe that names nothing in advance."""
    if isinstance(instance, EditsText):
        # lines of its own choosing: LibCST need not parse the rest
        return text.encode(instance.edit_text(text.text)), tuple(instance.found)
    module = cst.parse_module(text.text)
    if module.code != text.text:
        raise BadSource("LibCST can't print this file back unchanged")
    result = instance.transform_module(module)
    sites = tuple(instance.found)
    return text.encode(result.code), sites


def _new_lines(code: list[str], text: Text, lines: list[bytes], start: int) -> bytes:
    """``code`` as bytes that go in front of line ``start``."""
    new = text.newline.join(code)
    ended = start == 0 or lines[start - 1].endswith(b"\n")
    return (new + text.newline if ended else text.newline + new).encode("utf-8")


def _edit_slice(
    instance: Recipe,
    edits: list[Edit],
    piece: str,
    span: Span,
    lines: list[bytes],
    newline: str,
) -> tuple[str, list[Site]]:
    """Parse one slice, run its edits, print it."""
    ended = piece.endswith("\n")
    header = "" if isinstance(edits[0], Members) else _HEADER + newline
    wrapped = header + piece + ("" if ended else newline)
    module = cst.parse_module(wrapped)
    if module.code != wrapped:
        raise BadSource(
            f"LibCST can't print lines {span.start + 1}-{span.stop} back unchanged"
        )
    instance.indent = module.default_indent
    sites: list[Site] = []
    for edit in edits:
        before = module
        try:
            module = _edit_one(instance, edit, module)
        except Unmatched as problem:
            sites.append(_site(edit.site, problem, lines, span))
            continue
        changed = module is not before
        status = Status.CHANGED if changed else Status.NOT_NEEDED
        sites.append(Site(edit.site, status, span.start + 1))
    printed = module.code[len(header) :]
    if not ended:
        printed = printed[: -len(newline)]
        if not printed.endswith(piece.splitlines()[-1]):
            raise BadSource(
                "it has no newline at its end, so nothing can go below its last line:"
                " add one"
            )
    return printed, sites


def _edit_one(instance: Recipe, edit: Edit, module: cst.Module) -> cst.Module:
    """Run one edit on the class or method that the slice holds."""
    owner = cst.ensure_type(module.body[0], cst.ClassDef)
    if isinstance(edit, Members):
        changed = instance.run_edit(edit, owner)
        return module if changed is owner else module.with_changes(body=[changed])
    assert isinstance(edit, Method)
    names = [
        one.name.value for one in owner.body.body if isinstance(one, cst.FunctionDef)
    ]
    wanted = edit.chosen(names)
    body = list(owner.body.body)
    for index, node in enumerate(body):
        if isinstance(node, cst.FunctionDef) and node.name.value == wanted:
            body[index] = instance.run_edit(edit, node)
            if body[index] is node:
                return module
    block = owner.body.with_changes(body=body)
    return module.with_changes(body=[owner.with_changes(body=block)])


def _site(name: str, problem: Unmatched, lines: list[bytes], span: Span | None) -> Site:
    """An anchor that could not be used, with the nearest code there is."""
    start, stop = (span.start, span.stop) if span else (0, len(lines))
    nearest, line = "", start + 1 if span else 0
    if problem.like and problem.status.failed:
        shown = {
            number: lines[number].decode("utf-8").strip()
            for number in range(start, stop)
        }
        close = difflib.get_close_matches(problem.like, shown.values(), 1, 0.4)
        if close:
            number = next(n for n, value in shown.items() if value == close[0])
            nearest, line = f"line {number + 1}: {close[0]}", number + 1
    return Site(name, problem.status, line, problem.message, nearest)
