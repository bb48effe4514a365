"""The base class of recipes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, TypeVar

import libcst as cst
from libcst.codemod import CodemodCommand, CodemodContext

from patchkit.model import Site
from patchkit.recipe.anchors import (
    AnchorMissing,
    Constants,
    Edit,
    Import,
    Members,
    Method,
    Unmatched,
)
from patchkit.recipe.shapes import Statement
from patchkit.source import mark, strip_marks

Scope = TypeVar("Scope", cst.FunctionDef, cst.ClassDef)

#: A formatter must not re-break a marked line (black's default width).
WIDTH = 88


class Recipe(CodemodCommand):
    """Base class of recipes. One recipe, one file in ``recipes/``.

    Class attributes are literals, because ``patchkit list`` and ``status`` read them
    from the source without importing it (LibCST alone costs half a second).
    """

    version: ClassVar[int] = 1
    summary: ClassVar[str] = ""
    releases: ClassVar[str] = ""
    next_step: ClassVar[str] = ""
    #: option -> (default, help)
    options: ClassVar[Mapping[str, tuple[str, str]]] = {}
    #: site -> what it says
    sites: ClassVar[Mapping[str, str]] = {}
    #: environment variables beyond the tap's own: (name, help)
    environment: ClassVar[tuple[tuple[str, str], ...]] = ()
    #: recipes that go first where both are applied
    after: ClassVar[tuple[str, ...]] = ()
    #: recipes that can't be applied together with it
    excludes: ClassVar[tuple[str, ...]] = ()
    #: file -> why a tree without it needs nothing; other files must be there
    absent: ClassVar[Mapping[str, str]] = {}
    #: patterns of files that it reads beside the one it edits: ``self.surroundings``
    looks_at: ClassVar[tuple[str, ...]] = ()
    #: adds whole marked lines only: dropping them restores the file
    inserts_only: ClassVar[bool] = True
    uses_tap: ClassVar[bool] = False
    #: what ``patchkit verify`` holds the recipe to: site -> the oracle's quantities
    #: that it observes (docs/verify.md lists them). Gate off or on, no output changes.
    promises: ClassVar[Mapping[str, str]] = {}
    #: checks of ``patchkit verify`` that must pass with it, no known defect listed
    fixes: ClassVar[tuple[str, ...]] = ()
    #: patterns of outputs that may differ from the baseline (docs/verify.md)
    changes: ClassVar[tuple[str, ...]] = ()
    #: options that at ``yes`` leave no EAGLE-3 draft to be run
    without_draft: ClassVar[tuple[str, ...]] = ()
    #: a recipe that names no anchors: the files that it rewrites as a whole
    files: ClassVar[tuple[str, ...]] = ()
    #: file (relative to the sglang package) -> its edits, in order
    edits: ClassVar[Mapping[str, Sequence[Edit]]] = {}

    def __init__(self, context: CodemodContext, **options: str):
        super().__init__(context)
        self.chosen = {name: default for name, (default, _) in self.options.items()}
        self.chosen.update({k: v for k, v in options.items() if v is not None})
        self.found: list[Site] = []
        #: path -> bytes of the files that ``looks_at`` names
        self.surroundings: Mapping[str, bytes] = {}
        #: one level of indentation in the file at hand
        self.indent = " " * 4
        self.check_options()

    @classmethod
    def recipe_name(cls) -> str:
        return cls.__module__.rpartition(".")[2].replace("_", "-")

    def check_options(self) -> None:
        """Raise BadOption if a value in ``self.chosen`` makes no sense."""

    @classmethod
    def add_args(cls, arg_parser: argparse.ArgumentParser) -> None:
        for name, (default, text) in cls.options.items():
            flag = "--" + name.replace("_", "-")
            arg_parser.add_argument(flag, dest=name, default=default, help=text)

    @property
    def DESCRIPTION(self) -> str:  # type: ignore[override]  # LibCST's name for it
        return self.summary

    # -- LibCST's own runner: the whole file at once -------------------------------

    def edits_for(self, filename: str) -> Sequence[Edit]:
        """The edits for a file given by any path that ends in its place in sglang."""
        posix = filename.replace("\\", "/")
        for path, edits in self.edits.items():
            if posix == path or posix.endswith("/" + path):
                return edits
        return ()

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        edits = self.edits_for(self.context.filename or "")
        self.indent = tree.default_indent
        if edits and self.inserts_only:
            clean = strip_marks(tree.bytes, self.recipe_name())
            if clean != tree.bytes:
                tree = cst.parse_module(clean)
        for edit in edits:
            try:
                if isinstance(edit, (Import, Constants)):
                    tree = self._add_lines(tree, edit)
                elif isinstance(edit, Members):
                    owner = find_class(tree, edit)
                    tree = cst.ensure_type(
                        tree.deep_replace(owner, self.run_edit(edit, owner)), cst.Module
                    )
                else:
                    function = find_method(tree, edit)
                    changed = self.run_edit(edit, function)
                    if changed is not function:
                        tree = cst.ensure_type(
                            tree.deep_replace(function, changed), cst.Module
                        )
            except Unmatched as problem:
                self.warn(f"{edit.site}: {problem.status.value}: {problem.message}")
        return tree

    # -- used by both runners -----------------------------------------------------

    def run_edit(self, edit: Method | Members, node: Scope) -> Scope:
        method: Callable[[Scope], Scope] = getattr(self, edit.edit)
        return method(node)

    def top_level_lines(self, edit: Import | Constants) -> list[str]:
        """What goes to the top level for ``edit``, without marks."""
        if isinstance(edit, Import):
            return [edit.line]
        found: list[str] = getattr(self, edit.edit)()
        return found

    def marked(self, code: Iterable[str]) -> list[str]:
        """``code`` (physical lines, indented by 4), with the mark on each. An empty
        line becomes the mark alone, as deep as what follows."""
        mine = mark(self.recipe_name())
        found: list[str] = []
        deep = ""
        for line in reversed(list(code)):
            bare = line.lstrip(" ")
            if bare:
                deep = self.indent * ((len(line) - len(bare)) // 4)
            found.append(f"{deep}{bare}  {mine}" if bare else f"{deep}{mine}")
        return found[::-1]

    def _add_lines(self, module: cst.Module, edit: Import | Constants) -> cst.Module:
        index, above = position(module, edit)
        body = list(module.body)
        first, *others = self.lines(self.top_level_lines(edit))
        if not above and index < len(body):
            # the blank lines in front of the import block go in front of ours
            following = body[index]
            first = first.with_changes(leading_lines=_leading_lines(following))
            body[index] = following.with_changes(leading_lines=())
        body[index:index] = [first, *others]
        return module.with_changes(body=body)

    def lines(self, code: Iterable[str]) -> list[Statement]:
        """Parse ``code`` (physical lines, indented by 4) with the mark on each."""
        text = "".join(line + "\n" for line in self.marked(code))
        module = cst.parse_module(text)
        first, *others = module.body
        # LibCST gives comments on top to the module
        above = (*module.header, *first.leading_lines)
        return [first.with_changes(leading_lines=above), *others]

    def gated(
        self, condition: Sequence[str], function: str, *arguments: str
    ) -> Callable[[int], list[Statement]]:
        """``if condition: function(arguments)``, broken to fit at any depth.

        ``condition`` is the test, followed by the members of the tuple it ends in,
        if it ends in one: ``("ENABLED and i in", "2", "30")``.
        """

        def build(depth: int) -> list[Statement]:
            room = WIDTH - 4 * depth - len("  " + mark(self.recipe_name()))
            test, *members = condition
            comma = "," if len(members) == 1 else ""
            head = _fit(f"if {test} (", members, comma + "):", room)
            if not members:
                head = [f"if {test}:"]
            call = _fit(f"    {function}(", arguments, ")", room)
            return self.lines([*head, *call])

        return build


def _fit(opening: str, items: Sequence[str], closing: str, room: int) -> list[str]:
    """One line if it fits in ``room`` columns, else one item a line (as black)."""
    line = opening + ", ".join(items) + closing
    if len(line) <= room:
        return [line]
    indent = " " * (len(opening) - len(opening.lstrip()))
    return [
        opening,
        *(f"{indent}    {item}," for item in items),
        indent + closing.lstrip(","),
    ]


def find_method(module: cst.Module, edit: Method) -> cst.FunctionDef:
    """The method that ``edit`` names. Raises AnchorMissing or Ambiguous."""
    methods = {
        id(node): node
        for owner in module.body
        if isinstance(owner, cst.ClassDef) and owner.name.value in edit.owners
        for node in owner.body.body
        if isinstance(node, cst.FunctionDef)
    }
    wanted = edit.chosen([node.name.value for node in methods.values()])
    return next(node for node in methods.values() if node.name.value == wanted)


def find_class(module: cst.Module, edit: Members) -> cst.ClassDef:
    """The class that ``edit`` names. Raises AnchorMissing or Ambiguous."""
    found = [
        node
        for node in module.body
        if isinstance(node, cst.ClassDef) and node.name.value == edit.class_name
    ]
    edit.check(len(found))
    return found[0]


def position(module: cst.Module, edit: Import | Constants) -> tuple[int, bool]:
    """Which statement of the module the lines of ``edit`` should be; see
    ``Import.goes_before``. And whether they belong to the one above."""
    last = None
    for index, statement in enumerate(module.body):
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)) and last is not None:
            break  # an import further down comes too late for these
        node = _import_of(statement)
        if node is None:
            continue
        last = index
        if (
            isinstance(edit, Import)
            and isinstance(node, cst.ImportFrom)
            and node.module
            and not node.relative
        ):
            above = _leading_lines(statement) or (() if index else module.header)
            glued = bool(above and above[-1].comment)
            if edit.goes_before(cst.Module([]).code_for_node(node.module), glued):
                return index, False
    if last is None:
        raise AnchorMissing("no import at the top level of this file", like="import")
    return last + 1, True


def _import_of(statement: cst.CSTNode) -> cst.Import | cst.ImportFrom | None:
    if isinstance(statement, cst.SimpleStatementLine):
        node = statement.body[0]
        if isinstance(node, (cst.Import, cst.ImportFrom)):
            return node
    return None


def _leading_lines(statement: cst.CSTNode) -> Sequence[cst.EmptyLine]:
    if isinstance(statement, cst.SimpleStatementLine):
        return statement.leading_lines
    return ()
