"""The base class of recipes, and the small vocabulary that they share.

A recipe names its anchors by scope (a method of a class, the import block), so that
the engine can hand LibCST the smallest slice that is safe, while LibCST's own runner
(``python -m libcst.tool codemod``) runs the same methods over the whole file.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Callable, ClassVar, Iterable, Mapping, Sequence, Union

import libcst as cst
from libcst.codemod import CodemodCommand, CodemodContext

from patchkit.model import Site, Status
from patchkit.source import mark, strip_marks

#: A formatter must not re-break a marked line (black's default width).
WIDTH = 88

Statement = Union[cst.SimpleStatementLine, cst.BaseCompoundStatement]


class Unmatched(Exception):
    """An anchor that a recipe could not use; becomes a Site of the outcome."""

    status = Status.REFUSED

    def __init__(self, message: str, *, like: str = ""):
        super().__init__(message)
        self.message = message
        self.like = like


class AnchorMissing(Unmatched):
    """Nothing in the scope has the shape looked for. ``like`` finds the nearest."""

    status = Status.ANCHOR_MISSING


class Ambiguous(Unmatched):
    """Two candidates for one anchor, or a shape that is not known."""


class NotNeeded(Unmatched):
    """This tree has it already, or has nothing to do it to."""

    status = Status.NOT_NEEDED


class BadOption(Exception):
    """An option's value makes no sense; the message says what would."""


@dataclass(frozen=True)
class Method:
    """One site in the body of ``class_name.function``, edited by method ``edit``.

    ``function`` may name several, separated by spaces: the first that the class has
    (code moves between releases). ``edit(function) -> function`` may only change the
    function's body.
    """

    site: str
    class_name: str
    function: str
    edit: str

    @property
    def what(self) -> str:
        return f"{self.class_name}.{self.function.replace(' ', ' or ')}"

    def chosen(self, names: Sequence[str]) -> str:
        """Which of the wanted functions a class with these methods has.

        Raises AnchorMissing if none, Ambiguous if it is defined more than once.
        """
        for wanted in self.function.split():
            if names.count(wanted) > 1:
                raise Ambiguous(f"{self.class_name}.{wanted} is defined twice")
            if wanted in names:
                return wanted
        like = f"def {self.function.split()[0]}(self"
        raise AnchorMissing(f"no {self.what} in this file", like=like)


@dataclass(frozen=True)
class Import:
    """One import line, put where isort would put it in the top-level block."""

    site: str
    line: str


Edit = Union[Method, Import]


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
    #: adds whole marked lines only: dropping them restores the file
    inserts_only: ClassVar[bool] = True
    uses_tap: ClassVar[bool] = False
    #: file (relative to the sglang package) -> its edits, in order
    edits: ClassVar[Mapping[str, Sequence[Edit]]] = {}

    def __init__(self, context: CodemodContext, **options: str):
        super().__init__(context)
        self.chosen = {name: default for name, (default, _) in self.options.items()}
        self.chosen.update({k: v for k, v in options.items() if v is not None})
        self.found: list[Site] = []
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
        if edits and self.inserts_only:
            clean = strip_marks(tree.bytes, self.recipe_name())
            if clean != tree.bytes:
                tree = cst.parse_module(clean)
        for edit in edits:
            try:
                if isinstance(edit, Import):
                    tree = self.add_import(tree, edit)
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

    def run_edit(self, edit: Method, function: cst.FunctionDef) -> cst.FunctionDef:
        method: Callable[[cst.FunctionDef], cst.FunctionDef] = getattr(self, edit.edit)
        return method(function)

    def add_import(self, module: cst.Module, edit: Import) -> cst.Module:
        """Insert ``edit.line`` in front of the import that isort would put next."""
        index = import_position(module.body, edit.line)
        body = list(module.body)
        (new,) = self.lines([edit.line])
        if index < len(body):
            following = body[index]
            new = new.with_changes(leading_lines=following.leading_lines)
            body[index] = following.with_changes(leading_lines=())
        body.insert(index, new)
        return module.with_changes(body=body)

    def lines(self, code: Iterable[str]) -> list[Statement]:
        """Parse ``code`` (physical lines, indented by 4) with the mark on each."""
        mine = mark(self.recipe_name())
        text = "".join(f"{line}  {mine}\n" for line in code)
        return list(cst.parse_module(text).body)

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
        if isinstance(owner, cst.ClassDef) and owner.name.value == edit.class_name
        for node in owner.body.body
        if isinstance(node, cst.FunctionDef)
    }
    wanted = edit.chosen([node.name.value for node in methods.values()])
    return next(node for node in methods.values() if node.name.value == wanted)


def import_position(body: Sequence[cst.CSTNode], line: str) -> int:
    """Index in ``body`` at which isort would put ``line``, or after all imports."""
    ours = line.split()[1]
    last = None
    for index, statement in enumerate(body):
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        node = statement.body[0]
        if not isinstance(node, (cst.Import, cst.ImportFrom)):
            continue
        last = index
        if isinstance(node, cst.ImportFrom) and node.module and not node.relative:
            name = cst.Module([]).code_for_node(node.module)
            glued = any(line.comment for line in statement.leading_lines)
            if name.split(".")[0] == ours.split(".")[0] and name > ours and not glued:
                return index
    if last is None:
        raise AnchorMissing("no import at the top level of this file", like="import")
    return last + 1


@dataclass(frozen=True)
class Insertion:
    """Statements to put around ``anchor``; built for the depth it stands at."""

    anchor: cst.CSTNode
    before: Callable[[int], list[Statement]] | None = None
    after: Callable[[int], list[Statement]] | None = None


def insert(function: cst.FunctionDef, *insertions: Insertion) -> cst.FunctionDef:
    """``function`` with whole statements put before or after its statements.

    Raises Ambiguous where an anchor shares its line with other statements: only
    whole physical lines are ever added.
    """
    splice = _Splice(insertions)
    changed = cst.ensure_type(function.visit(splice), cst.FunctionDef)
    if splice.pending:
        raise Ambiguous(
            "the anchor shares its line with other code (a one-line suite)"
        )
    return changed


def insert_first(
    function: cst.FunctionDef, build: Callable[[int], list[Statement]]
) -> cst.FunctionDef:
    """``function`` with statements put first in its body, below the docstring."""
    if not isinstance(function.body, cst.IndentedBlock):
        raise Ambiguous(f"the body of {function.name.value} is on its first line")
    first = function.body.body[0]
    if function.get_docstring() is not None:
        return insert(function, Insertion(first, after=build))
    return insert(function, Insertion(first, before=build))


class _Splice(cst.CSTTransformer):
    def __init__(self, insertions: Sequence[Insertion]):
        super().__init__()
        self.wanted = {id(one.anchor): one for one in insertions}
        self.pending = set(self.wanted)
        # a method's body: one level for the class, one for the function
        self.depth = 1

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self.depth += 1

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        depth, self.depth = self.depth, self.depth - 1
        body: list[cst.BaseStatement] = []
        for old, new in zip(original_node.body, updated_node.body):
            one = self.wanted.get(id(old))
            if one is None or not _owns_its_lines(old):
                body.append(new)
                continue
            self.pending.discard(id(old))
            before = one.before(depth) if one.before else []
            after = one.after(depth) if one.after else []
            body += [*before, new, *after]
        if len(body) == len(updated_node.body):
            return updated_node
        return updated_node.with_changes(body=body)


def _owns_its_lines(statement: cst.CSTNode) -> bool:
    if isinstance(statement, cst.SimpleStatementLine):
        return len(statement.body) == 1
    return True


_STATEMENT = (
    cst.SimpleStatementLine,
    cst.SimpleStatementSuite,
    cst.BaseCompoundStatement,
)


def statements(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Every statement inside ``node``'s own body, outer before inner, in order.

    Bodies of nested functions and classes are left out. A one-line suite counts as
    one statement, so that an anchor in it is seen (and refused by ``insert``).
    """
    found: list[cst.CSTNode] = []

    class Collect(cst.CSTVisitor):
        def on_visit(self, inner: cst.CSTNode) -> bool:
            if inner is not node and isinstance(inner, _STATEMENT):
                found.append(inner)
            nested = isinstance(inner, (cst.FunctionDef, cst.ClassDef, cst.Lambda))
            return inner is node or not nested

    node.visit(Collect())
    return found


def only(statement: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """The small statement of a line that holds just one."""
    if isinstance(statement, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
        return statement.body[0] if len(statement.body) == 1 else None
    return None


def code(node: cst.CSTNode) -> str:
    """``node`` as source, on one line, for messages and comparisons."""
    return " ".join(cst.Module([]).code_for_node(node).split())


__all__ = [
    "Ambiguous",
    "AnchorMissing",
    "BadOption",
    "Edit",
    "Import",
    "Insertion",
    "Method",
    "NotNeeded",
    "Recipe",
    "Statement",
    "Unmatched",
    "code",
    "insert",
    "insert_first",
    "only",
    "statements",
]
