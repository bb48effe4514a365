"""Whether evaluating an expression does more than look, and what it prints."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from patchkit.recipe.debugcode import words
from patchkit.recipe.debugcode.files import Files
from patchkit.recipe.debugcode.iterators import Iterators
from patchkit.recipe.debugcode.methods import Methods
from patchkit.recipe.debugcode.names import Function, Names, Variable
from patchkit.recipe.debugcode.owners import is_owners

DUMPS = "writes a dump (-O dumps=yes takes it out too)"


@dataclass(frozen=True)
class Wanted:
    """What else is debug code: loggers by a pattern, calls by name, dumps.

    ``ships_logger``: whether a ``logger`` of the module is the release's own.
    """

    pattern: re.Pattern[str] | None = None
    calls: frozenset[str] = frozenset()
    dumps: bool = False
    ships_logger: bool = True


def shown(node: ast.AST) -> str:
    """Code for a message: one short line."""
    text = " ".join(ast.unparse(node).split())
    return f"`{text}`" if len(text) <= 60 else f"`{text[:57]}...`"


class Effects:
    """``helpers``: the functions of this file that only look or print; ``printing``:
    those of them that print."""

    def __init__(self, names: Names, wanted: Wanted):
        self.names = names
        self.wanted = wanted
        self.helpers: set[Variable] = set()
        self.printing: set[Variable] = set()
        self.files = Files(names)
        self.methods = Methods(names)
        self.iterators = Iterators(names, self._only_looks)

    def reason(self, node: ast.AST, sinks: list[ast.Call]) -> str:
        """Why evaluating may change something, or nothing. Output is no change: the
        calls that print are added to ``sinks``."""
        if isinstance(node, (ast.Constant, ast.Name)):
            return ""
        if isinstance(node, ast.Lambda):
            return self.reason(node.body, sinks)
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return f"{shown(node)} does more than look"
        if isinstance(node, ast.Call):
            return self._call(node, sinks)
        read: list[ast.expr] = []
        if isinstance(node, ast.comprehension):
            read = [node.iter]
        elif isinstance(node, ast.Starred):
            read = [node.value]
        elif isinstance(node, ast.Compare):
            many = zip(node.ops, node.comparators)
            read = [one for how, one in many if isinstance(how, (ast.In, ast.NotIn))]
        for one in read:
            if self.uses_up(one):
                return self.uses_up(one)
        for part in ast.iter_child_nodes(node):
            if isinstance(part, (ast.expr, ast.comprehension, ast.keyword)):
                found = self.reason(part, sinks)
                if found:
                    return found
        return ""

    def uses_up(self, node: ast.expr) -> str:
        """Why iterating over ``node`` may take something from who reads it next."""
        return self.iterators.uses_up(node)

    def _call(self, node: ast.Call, sinks: list[ast.Call]) -> str:
        arguments = [*node.args, *(one.value for one in node.keywords)]
        if any(one.arg in ("out", "inplace") for one in node.keywords):
            return f"{shown(node.func)} writes into an argument"
        sink = self.is_output(node)
        if isinstance(sink, str):
            return sink
        if sink:
            sinks.append(node)
        elif not self._only_looks(node):
            if self.files.opens(node):
                return self._why_open(node)
            return f"{shown(node.func)} may do more than look"
        if isinstance(node.func, ast.Attribute):
            arguments.insert(0, node.func.value)
        for one in arguments:
            found = self.reason(one, sinks)
            if found:
                return found
        joins = isinstance(node.func, ast.Attribute) and node.func.attr == "join"
        chains = self.names.path(node.func).startswith("itertools.")
        if joins or chains or self._builtin(node.func) in words.CONSUMERS:
            return self._consumes(node)
        return ""

    def _consumes(self, node: ast.Call) -> str:
        called = [one.value for one in node.keywords if one.arg == "key"]
        if self._builtin(node.func) in ("map", "filter"):
            called += node.args[:1]
        for one in called:
            known = isinstance(one, (ast.Lambda, ast.Constant)) or (
                self._builtin(one) in words.BUILTINS
                or self.names.variable.get(one) in self.helpers
            )
            if not known:
                return f"{shown(one)} may do more than look"
        return next(filter(None, map(self.uses_up, node.args)), "")

    def _builtin(self, node: ast.expr) -> str:
        """The name of the builtin function that ``node`` is, or nothing."""
        if not isinstance(node, ast.Name):
            return ""
        variable = self.names.variable.get(node)
        if variable is None:
            return ""
        stores = self.names.stores.get(variable, [])
        if not stores:
            return node.id if variable.kind == "global" else ""
        # another name for one: p = print
        values = [getattr(one.statement, "value", None) for one in stores]
        known = {one.id if isinstance(one, ast.Name) else "" for one in values}
        if len(known) > 1 or variable in self.names.parameters:
            return ""
        (name,) = known
        return name if name in words.OUTPUT_BUILTINS else ""

    # -- what prints --------------------------------------------------------------

    def is_output(self, node: ast.Call) -> bool | str:
        """Whether this call is debug output; a text: it is, but can't be treated so."""
        path = self.names.path(node.func)
        last = path.rpartition(".")[2]
        if self._builtin(node.func) in words.OUTPUT_BUILTINS or path in words.OUTPUT:
            return self._prints_where(node)
        if path and path in self.wanted.calls:
            return True
        if path in words.DUMPS or self._writes_array(node):
            for one in node.args:
                if self.files.opened(one) and not self.is_handle(one):
                    return f"{shown(one)} may be no debug log"
            return self.wanted.dumps or f"{shown(node.func)} {DUMPS}"
        if self._is_logger_call(node, last) or path == "warnings.warn":
            return self._names_subject(node)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "print":  # of a console
                return True
            if node.func.attr in words.HOOKS:
                return self._hooks_output(node)
            if node.func.attr in words.FILE_METHODS:
                return self.is_handle(node.func.value)
            if node.func.attr == "remove":
                return self._is_hook(node.func.value)
        return self.callee(node) in self.printing

    def _prints_where(self, node: ast.Call) -> bool | str:
        for one in node.keywords:
            if one.arg == "file" and not (
                self.names.path(one.value).startswith("sys.")
                or self.is_handle(one.value)
            ):
                for call in self.files.opened(one.value):
                    if self.files.is_log(call):
                        return f"its file {DUMPS}"
                return f"it prints into {shown(one.value)}, which may be no log"
        return True

    def _writes_array(self, node: ast.Call) -> bool:
        return isinstance(node.func, ast.Attribute) and node.func.attr == "tofile"

    def _is_logger_call(self, node: ast.Call, last: str) -> bool:
        if isinstance(node.func, ast.Name):
            return last in words.LOG_HELPERS
        if not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr not in words.LOG_METHODS:
            return False
        owner = node.func.value
        if isinstance(owner, ast.Call):
            return self.names.path(owner.func) == "logging.getLogger"
        return words.is_logger(words.dotted(owner).rpartition(".")[2])

    def _names_subject(self, node: ast.Call) -> bool:
        if words.subjects(node) & words.SUBJECTS:
            return True
        pattern = self.wanted.pattern
        return bool(pattern and pattern.search(ast.unparse(node)))

    def is_handle(self, node: ast.expr) -> bool:
        """Whether this is a debug log that the code opened, and nothing else."""
        opened = self.files.opened(node)
        return bool(opened) and all(map(self.is_open, opened))

    def is_open(self, node: ast.expr) -> bool:
        """Whether this opens a debug log, and dumps are wanted."""
        return self.wanted.dumps and self.files.is_log(node)

    def _why_open(self, node: ast.Call) -> str:
        if self.files.is_log(node):
            return f"`open` {DUMPS}"
        return "it writes a file that may be no debug log"

    def _hooks_output(self, node: ast.Call) -> bool:
        """Registering a hook that prints and returns nothing."""
        hook = node.args[0] if node.args else None
        if isinstance(hook, ast.Lambda):
            # what else a hook returns would replace the module's output
            sinks: list[ast.Call] = []
            fine = not self.reason(hook.body, sinks)
            return fine and hook.body in sinks
        variable = self.names.variable.get(hook) if hook is not None else None
        if variable is None or variable not in self.printing:
            return False
        made = self.names.stores[variable][0].statement
        return not any(
            isinstance(one, ast.Return) and one.value is not None
            for one in ast.walk(made)
        )

    def _is_hook(self, node: ast.expr) -> bool:
        """What registering a printing hook returned."""
        variable = self.names.variable.get(node)
        stores = self.names.stores.get(variable, []) if variable else []
        made = [getattr(one.statement, "value", None) for one in stores]
        return bool(made) and all(
            isinstance(one, ast.Call)
            and isinstance(one.func, ast.Attribute)
            and one.func.attr in words.HOOKS
            and self._hooks_output(one)
            for one in made
        )

    # -- what only looks ----------------------------------------------------------

    def callee(self, node: ast.Call) -> Variable | None:
        """The variable of a function of this file that is called by name, or of a
        method of the class around that is called on ``self``."""
        variable = self.names.variable.get(node.func)
        if isinstance(node.func, ast.Attribute):
            stores = self.names.stores.get(variable, []) if variable else []
            if not stores or not all(
                is_owners(self.names, node.func, one.node) for one in stores
            ):
                return None
        return variable

    def _only_looks(self, node: ast.Call) -> bool:
        builtin = self._builtin(node.func)
        if builtin in words.BUILTINS or self.callee(node) in self.helpers:
            return True
        path = self.names.path(node.func)
        if path and words.only_looks(path):
            variable = self.names.variable.get(node.func)
            stores = self.names.stores.get(variable, []) if variable else []
            # a function of that name in this file is judged by what it does
            return not any(isinstance(one.statement, Function) for one in stores)
        if self.is_open(node):
            return True
        if not isinstance(node.func, ast.Attribute):
            return False
        return self.methods.only_looks(node, node.func.attr, node.func.value)
