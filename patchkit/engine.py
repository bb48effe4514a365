"""apply(recipe, source) -> Outcome. Pure: no files, no git, no click, no printing.

Only what a recipe touches is re-printed: anchors are located with ``ast``, LibCST is
handed one method or one import, and every byte outside is unchanged by construction
(LibCST is not always lossless; it drops a blank line in ``x = 1\\n\\n   \\n``).
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

import libcst as cst
from libcst.codemod import CodemodContext

from patchkit.model import Outcome, Site, Status
from patchkit.recipe import (
    Ambiguous,
    AnchorMissing,
    BadOption,
    Edit,
    Import,
    Method,
    Recipe,
    Unmatched,
)
from patchkit.source import BadSource, Text, decode, physical_lines, strip_marks

_HEADER = "class _:"


@dataclass(frozen=True)
class _Span:
    """Lines ``start`` (0-based) to ``stop`` (exclusive); for an import line also
    which statement of that slice it becomes."""

    start: int
    stop: int
    index: int = 0


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
) -> Outcome:
    """What ``recipe`` makes of the file ``path`` (relative to the sglang package).

    Never raises for bad input: an unreadable file, an anchor that is gone, a recipe
    that raises or returns broken code are all REFUSED or ANCHOR_MISSING outcomes
    whose ``source`` is the one given.
    """
    name = recipe.recipe_name()

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
        after, sites = _run(recipe, dict(options or {}), text, tree, path)
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
    broken = _check(recipe, dict(options or {}), text, tree, before, after, path)
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
    options: Mapping[str, str],
    text: Text,
    tree: ast.Module,
    before: bytes,
    after: bytes,
    path: str,
) -> str:
    """Why the result must not be written, or nothing. ``tree``: that of ``before``."""
    if after == before:
        return ""
    name = recipe.recipe_name()
    if recipe.inserts_only and strip_marks(after, name) != before:
        return "the recipe changed lines that it did not mark"
    try:
        compile(decode(after).text, path, "exec", dont_inherit=True)
        if not recipe.inserts_only:
            text = decode(after)
            tree = ast.parse(text.text)
    except (BadSource, SyntaxError, ValueError) as problem:
        return f"the recipe returned code that does not compile: {problem}"
    try:
        # an inserting recipe's own marks are stripped before it runs, so that its
        # second run starts from ``before`` too
        again, _ = _run(recipe, options, text, tree, path)
    except (Exception, SystemExit) as problem:
        return f"the recipe fails on its own result: {problem}"
    if again != after:
        return "the recipe is not idempotent: a second run changes the file again"
    return ""


def _run(
    recipe: type[Recipe],
    options: Mapping[str, str],
    text: Text,
    tree: ast.Module,
    path: str,
) -> tuple[bytes, tuple[Site, ...]]:
    instance = recipe(CodemodContext(filename=path), **options)
    edits = instance.edits_for(path)
    if not edits:
        return _whole_file(instance, text)
    # bytes of the body in its own encoding; physical lines are ast's lines
    lines = physical_lines(text.text.encode("utf-8"))
    changes: list[tuple[_Span, bytes]] = []
    sites: list[Site] = []
    for _, group in groupby(edits, key=_scope):
        members = list(group)
        try:
            span = _locate(tree, members[0], lines)
        except Unmatched as problem:
            sites += [_site(one.site, problem, lines, None) for one in members]
            continue
        piece = b"".join(lines[span.start : span.stop]).decode("utf-8")
        done, found = _edit_slice(instance, members, piece, span, lines, text.newline)
        sites += found
        if done != piece:
            changes.append((span, done.encode("utf-8")))
    if any(site.status.failed for site in sites):
        return text.encode(text.text), tuple(sites)
    for span, new in sorted(changes, key=lambda change: -change[0].start):
        lines[span.start : span.stop] = [new]
    return text.encode(b"".join(lines).decode("utf-8")), tuple(sites)


def _whole_file(instance: Recipe, text: Text) -> tuple[bytes, tuple[Site, ...]]:
    """A recipe that names nothing in advance: splice back changed statements only."""
    module = cst.parse_module(text.text)
    if module.code != text.text:
        raise BadSource("LibCST can't print this file back unchanged")
    result = instance.transform_module(module)
    sites = tuple(instance.found)
    return text.encode(result.code), sites


def _scope(edit: Edit) -> tuple[str, str]:
    if isinstance(edit, Import):
        return ("import", edit.line)
    return (edit.class_name, edit.function)


def _locate(tree: ast.Module, edit: Edit, lines: list[bytes]) -> _Span:
    """Where the smallest safe slice for ``edit`` lies."""
    if isinstance(edit, Import):
        return _locate_import(tree, edit, lines)
    methods = [
        node
        for owner in tree.body
        if isinstance(owner, ast.ClassDef) and owner.name == edit.class_name
        for node in owner.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    wanted = edit.chosen([node.name for node in methods])
    _refuse_shadowed(tree, edit.class_name, wanted)
    node = next(node for node in methods if node.name == wanted)
    start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    assert node.end_lineno is not None  # ast.parse always sets it
    if node.body[0].lineno == node.lineno:
        raise Ambiguous(f"the body of {edit.what} is on the line of its def")
    return _Span(start - 1, node.end_lineno)


def _refuse_shadowed(tree: ast.Module, class_name: str, function: str) -> None:
    """Raise Ambiguous if another definition, under an ``if`` or ``try``, may win."""
    for node in tree.body:
        if isinstance(node, (ast.If, ast.Try)):
            for inner in ast.walk(node):
                if isinstance(inner, ast.ClassDef) and inner.name == class_name:
                    raise Ambiguous(
                        f"class {class_name} is defined again, on line {inner.lineno},"
                        " under a condition"
                    )
        if not (isinstance(node, ast.ClassDef) and node.name == class_name):
            continue
        for member in node.body:
            if not isinstance(member, (ast.If, ast.Try)):
                continue
            for inner in ast.walk(member):
                if isinstance(inner, ast.FunctionDef) and inner.name == function:
                    raise Ambiguous(
                        f"{class_name}.{function} is defined again, on line"
                        f" {inner.lineno}, under a condition"
                    )


def _locate_import(tree: ast.Module, edit: Import, lines: list[bytes]) -> _Span:
    """The import beside which the line goes; ``_Span.index`` says on which side."""
    last: ast.stmt | None = None
    for node in tree.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        last = node
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            above = lines[node.lineno - 2] if node.lineno > 1 else b""
            if edit.goes_before(node.module, above.lstrip().startswith(b"#")):
                return _Span(node.lineno - 1, node.end_lineno or node.lineno, 0)
    if last is None:
        raise AnchorMissing("no import at the top level of this file", like="import")
    return _Span(last.lineno - 1, last.end_lineno or last.lineno, 1)


def _edit_slice(
    instance: Recipe,
    edits: list[Edit],
    piece: str,
    span: _Span,
    lines: list[bytes],
    newline: str,
) -> tuple[str, list[Site]]:
    """Parse one slice, run its edits, print it."""
    ended = piece.endswith("\n")
    header = "" if isinstance(edits[0], Import) else _HEADER + newline
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
            if isinstance(edit, Import):
                module = instance.add_import(module, edit.line, span.index)
            else:
                module = _edit_method(instance, edit, module)
        except Unmatched as problem:
            sites.append(_site(edit.site, problem, lines, span))
            continue
        changed = module is not before
        status = Status.CHANGED if changed else Status.NOT_NEEDED
        sites.append(Site(edit.site, status, span.start + 1))
    printed = module.code[len(header) :]
    if not ended:
        printed = printed[: -len(newline)]
    return printed, sites


def _edit_method(instance: Recipe, edit: Method, module: cst.Module) -> cst.Module:
    holder = cst.ensure_type(module.body[0], cst.ClassDef)
    function = cst.ensure_type(holder.body.body[0], cst.FunctionDef)
    changed = instance.run_edit(edit, function)
    if changed is function:
        return module
    block = holder.body.with_changes(body=[changed])
    return module.with_changes(body=[holder.with_changes(body=block)])


def _site(
    name: str, problem: Unmatched, lines: list[bytes], span: _Span | None
) -> Site:
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
