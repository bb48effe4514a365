"""Takes the aux-hidden-state capture out of deepseek_v2.py."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from patchkit.recipe.anchors import Ambiguous, AnchorMissing
from patchkit.recipe.removal.folding import fold_none
from patchkit.recipe.removal.others import files_that_pass
from patchkit.recipe.removal.source import Edit, Source
from patchkit.recipe.removal.sweep import (
    attributes_read,
    class_of,
    drop_dead_state,
    drop_unused_imports,
    method_named,
    self_attribute,
)

MODEL, HEAD, LAYER = (
    "DeepseekV2Model",
    "DeepseekV2ForCausalLM",
    "DeepseekV2DecoderLayer",
)
LAYERS, FLAG = "layers_to_capture", "capture_aux_hidden_states"


@dataclass
class Removal:
    """``text`` with less and less of the capture in it.

    ``refusal``: the lines that the setters consist of afterwards, unindented.
    ``needed``: names that other files import from this one. ``others``: other models;
    where one uses the decoder layer's parameter, it stays, and ``kept`` says so.
    """

    text: str
    refusal: Sequence[str]
    needed: Collection[str] = ()
    others: Mapping[str, bytes] = field(default_factory=dict)
    kept: str = ""
    keyword: str = ""
    suspects: set[str] = field(default_factory=set)
    dropped: list[str] = field(default_factory=list)

    def run(self) -> str:
        """Raises AnchorMissing or Ambiguous for shapes that are not known."""
        before = self.text
        self._forward()
        self._state(MODEL, LAYERS)
        self.text = drop_dead_state(self.text, MODEL, self.suspects - {LAYERS})
        if self.keyword:
            self._layer()
        self._unpacking()
        self._state(HEAD, FLAG)
        self._setters()
        self._expect_nothing_left()
        self.text, self.dropped = drop_unused_imports(self.text, before, self.needed)
        return self.text

    # -- the model --------------------------------------------------------------------

    def _forward(self) -> None:
        """The layer loop and the return."""
        source = Source(self.text)
        function = _method(source, MODEL, "forward")
        final, states = _tuple_return(function)
        edits = [self._plain_return(source, function, final, states)]
        for node in ast.walk(function):
            if isinstance(node, ast.If) and LAYERS in attributes_read([node.test]):
                if node.orelse:
                    raise Ambiguous(f"with an else: {source.shown(node.lineno)}")
                self._mean_to_delete(node)
                edits.append(source.delete(node))
            elif isinstance(node, ast.Assign) and _names(node.targets[0], states):
                edits.append(source.delete(node))
            elif isinstance(node, ast.Call):
                for one in node.keywords:
                    read = attributes_read([one.value])
                    if LAYERS in read and _names(one.value, states):
                        self.keyword = one.arg or ""
                        edits.append(source.drop_argument(node, one))
        self.text = source.apply(*edits)
        self._expect_gone(MODEL, states)

    def _mean_to_delete(self, node: ast.stmt) -> None:
        self.suspects |= attributes_read([node])

    def _plain_return(
        self, source: Source, function: ast.FunctionDef, final: ast.Return, states: str
    ) -> Edit:
        """``return hidden`` for ``return hidden, states`` if there are any."""
        assert isinstance(final.value, ast.Tuple)
        hidden = final.value.elts[0]
        tests = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.If) and _names(node.test, states)
        ]
        if len(tests) != 1 or tests[0].orelse or len(tests[0].body) != 1:
            raise Ambiguous(f"not one plain if asks whether {states} holds any state")
        (test,) = tests
        if final in test.body:
            return source.delete(test)
        other = test.body[0]
        same = isinstance(other, ast.Return) and other.value is not None
        if not same or ast.dump(other.value) != ast.dump(hidden):  # type: ignore[attr-defined]
            raise Ambiguous(f"an unknown shape: {source.shown(test.lineno)}")
        whole = source.delete(test)
        until = source.span(final)
        if source.data[whole.stop : until[0]].strip():
            raise Ambiguous(f"code between returns: {source.shown(test.lineno)}")
        indent = source.indent(final)
        return Edit(whole.start, until[1], indent + b"return " + source.code(hidden))

    def _state(self, owner: str, attribute: str) -> None:
        """``self.x = ...`` in ``__init__``, or ``x = ...`` in the class."""
        source = Source(self.text)
        found = class_of(source.tree, owner)
        function = method_named(found, "__init__")
        places = [*(found.body if found else ()), *(function.body if function else ())]
        edits = []
        for node in places:
            target: ast.expr | None = None
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
            elif isinstance(node, ast.AnnAssign):
                target = node.target
            name = getattr(target, "id", "") or (target and self_attribute(target))
            if name == attribute:
                edits.append(source.delete(node))
        self.text = source.apply(*edits)

    # -- the decoder layer ------------------------------------------------------------

    def _layer(self) -> None:
        """Its parameter, which it hands on by keyword."""
        users = files_that_pass(self.others, LAYER, self.keyword)
        if users:
            self.kept = f"{LAYER} keeps {self.keyword}: {', '.join(users)} may use it"
            return
        source = Source(self.text)
        function = _method(source, LAYER, "forward")
        edits = [source.drop_parameter(function, self.keyword)]
        handed = []
        for call in ast.walk(function):
            if isinstance(call, ast.Call):
                for one in call.keywords:
                    if getattr(one.value, "id", "") == self.keyword:
                        edits.append(source.drop_argument(call, one))
                        handed.append(one)
        uses = [n for n in ast.walk(function) if getattr(n, "id", "") == self.keyword]
        if len(uses) != len(handed):
            raise Ambiguous(
                f"{LAYER}.forward does more with {self.keyword} than pass it"
            )
        self.text = source.apply(*edits)

    # -- the model with its head ------------------------------------------------------

    def _unpacking(self) -> None:
        source = Source(self.text)
        function = _method(source, HEAD, "forward")
        tests = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.If) and FLAG in attributes_read([node.test])
        ]
        if len(tests) != 1 or tests[0].orelse:
            raise AnchorMissing(
                f"{HEAD}.forward has not one plain if on self.{FLAG}",
                like=f"if self.{FLAG}:",
            )
        unpacked = {
            node.id
            for node in ast.walk(tests[0])
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        inside = {id(node) for node in ast.walk(tests[0])}
        none = unpacked - {
            one.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and id(node) not in inside
            if not (isinstance(node.value, ast.Constant) and node.value.value is None)
            for one in ast.walk(node.targets[0])
            if isinstance(one, ast.Name)
        }
        edits = [source.delete(tests[0])]
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and id(call) not in inside:
                values: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
                for value in values:
                    if getattr(getattr(value, "value", value), "id", "") in none:
                        edits.append(source.drop_argument(call, value))
        self.text = fold_none(source.apply(*edits), HEAD, {"forward": none})
        for name in sorted(none):
            self._expect_gone(HEAD, name)

    def _setters(self) -> None:
        source = Source(self.text)
        owner = class_of(source.tree, HEAD)
        edits = []
        for node in owner.body if owner else ():
            if not isinstance(node, ast.FunctionDef) or not is_setter(node.name):
                continue
            first, last = node.body[0], node.body[-1]
            if first.lineno == node.lineno:
                raise Ambiguous(
                    f"a body on its first line: {source.shown(node.lineno)}"
                )
            top = first.lineno
            while source.lines[top - 2].lstrip().startswith(b"#"):
                top -= 1
            start, stop = source.offsets[top - 1], source.offsets[last.end_lineno or 0]
            indent = source.indent(first)
            lines = [
                indent + line.encode() + source.newline
                for line in (
                    # as deep as the file's own lines
                    one.replace("    ", _level(source, node))
                    for one in self.refusal
                )
            ]
            if not source.lines[(last.end_lineno or 0) - 1].endswith(b"\n"):
                lines[-1] = lines[-1].rstrip()
            edits.append(Edit(start, stop, b"".join(lines)))
        if not edits:
            raise AnchorMissing(
                f"{HEAD} has no setter of layers to capture",
                like="def set_eagle3_layers_to_capture(self, layer_ids):",
            )
        self.text = source.apply(*edits)

    def _expect_gone(self, owner: str, name: str) -> None:
        """No use of a local ``name`` is left in ``owner.forward``."""
        source = Source(self.text)
        line = _names(_method(source, owner, "forward"), name)
        if line:
            raise Ambiguous(f"an unknown use of {name}: {source.shown(line)}")

    def _expect_nothing_left(self) -> None:
        source = Source(self.text)
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and node.attr in (LAYERS, FLAG):
                line = source.shown(node.lineno)
                raise Ambiguous(f"an unknown use of {node.attr}: {line}")


def captures(tree: ast.Module) -> bool:
    """Whether the model's forward goes by layers to capture."""
    function = method_named(class_of(tree, MODEL), "forward")
    return function is not None and LAYERS in attributes_read([function])


def is_setter(name: str) -> bool:
    return name.startswith("set_") and name.endswith("_layers_to_capture")


def _method(source: Source, owner: str, name: str) -> ast.FunctionDef:
    found = class_of(source.tree, owner)
    if found is None:
        raise AnchorMissing(f"no class {owner} in this file", like=f"class {owner}")
    function = method_named(found, name)
    if function is None:
        raise AnchorMissing(f"no {owner}.{name} in this file", like=f"def {name}(self")
    return function


def _tuple_return(function: ast.FunctionDef) -> tuple[ast.Return, str]:
    """``return hidden, states`` (or ``states.finalize()``), and the states' name."""
    found = []
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            names = [one.id for one in ast.walk(node.value.elts[-1])
                     if isinstance(one, ast.Name)]  # fmt: skip
            if len(node.value.elts) == 2 and len(names) == 1:
                found.append((node, names[0]))
    if len(found) != 1:
        raise Ambiguous(
            f"{MODEL}.forward returns states in {len(found)} places, not one"
        )
    return found[0]


def _names(node: ast.AST, name: str) -> int:
    """The line on which ``name`` stands in ``node``; 0 if it doesn't."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id == name:
            return one.lineno
    return 0


def _level(source: Source, function: ast.FunctionDef) -> str:
    outer = source.indent(function)
    return source.indent(function.body[0])[len(outer) :].decode()
