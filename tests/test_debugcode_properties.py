"""Debug statements put into real releases at random: gated they run as before, taken
out they leave the release's own bytes."""

from __future__ import annotations

import ast
import difflib
import functools
import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from support import stock

from patchkit import engine
from patchkit.model import Status
from patchkit.recipe.debugcode.names import Names, inside
from patchkit.recipe.debugcode.switch import is_text
from patchkit.recipes.gate_debug_logging import GateDebugLogging
from patchkit.recipes.remove_debug_logging import RemoveDebugLogging

RELEASES = ("0.4.6", "0.5.5", "0.5.9", "0.5.15", "0.5.23")
FILES = GateDebugLogging.files
CONSTANT = "_EAGLE3_DEBUG_ON"
#: Log files are among what is put in.
DUMPS = {"dumps": "yes"}

#: Whole statements around a name {x} that is bound; {n} is a number of their own.
PIECES = (
    "print({x})",
    'print("{x}", {x}, flush=True)',
    'print(f"{{{x}=}}", file=sys.stderr)',
    'logger.info("hidden states: %s", {x})',
    'logger.debug(\n    "shape "\n    "of {x}: %s",\n    len(str({x})),\n)',
    "_dbg{n} = repr({x})\nprint(_dbg{n})",
    "if {x} is not None:\n    print({x})",
    "if {x} is None:\n    print(1)\nelse:\n    print({x}, 2)",
    'if os.environ.get("EAGLE3_DEBUG"):\n    consume({x})\n    print({x})',
    'if os.getenv("EAGLE3_DEBUG", "0") == "1" and {x} is not None:\n    print({x})',
    'if os.path.exists("/tmp/debug"):\n    print("""{x}\n  is""", {x})',
    "# DEBUG: {x}\nprint({x})  # shown",
    "try:\n    print({x}.shape)\nexcept Exception as why{n}:\n    print(why{n})",
    "import time as time{n}\nprint(time{n}.time(), {x})",
    "for row{n} in ({x}, 1):\n    if row{n} == 1:\n        continue\n    print(row{n})",
    "norms{n} = {{}}\nnorms{n}['x'] = id({x})\nprint(norms{n})",
    "def show{n}(value):\n    print(value)\nshow{n}({x})",
    "[print(one) for one in ({x},)]",
    "with torch.no_grad():\n    print({x})",
    'with open("/tmp/log", "a") as log{n}:\n    log{n}.write(str({x}))',
    "if not torch.cuda.is_current_stream_capturing():\n    print({x})",
    "norms{n} = []\nnorms{n}.append(type({x}))\nfor one{n} in norms{n}:\n"
    "    print(one{n})",
    "count{n} = 0\nwhile count{n} < 2:\n    print({x})\n    count{n} += 1",
    "assert_free{n} = lambda value: str(value)\nprint(assert_free{n}({x}))",
)
ELSE = (
    "else:\n    print({x})",
    "else:\n    # DEBUG\n    print(1)\n    print({x})",
    "elif {x} is None:\n    print({x})",
    "elif {x} is None:\n    print({x})\nelse:\n    print(2)",
)
#: The same, with whole lines for the top of the file.
WITH_TOP = (
    ("import pprint as pprint{n}", "pprint{n}.pprint({x})"),
    ("from datetime import datetime as dt{n}", "print(dt{n}.now(), {x})"),
    ("def _show{n}(value):\n    print(value)", "_show{n}({x})"),
    ("_LOG{n} = open('/tmp/log', 'a')", "print({x}, file=_LOG{n})\n_LOG{n}.flush()"),
    (
        "_CALLS{n} = 0",
        "global _CALLS{n}\n_CALLS{n} += 1\nif _CALLS{n} < 3:\n    print({x})",
    ),
    (
        "_DEBUG{n} = os.environ.get('EAGLE3_DEBUG', '0') == '1'",
        "if _DEBUG{n}:\n    consume({x})",
    ),
    ("_SEEN{n} = set()", "if 1 not in _SEEN{n}:\n    _SEEN{n}.add(1)\n    print({x})"),
)


@dataclass(repr=False)
class Case:
    release: str
    path: str
    stock: bytes
    patched: bytes

    def __repr__(self) -> str:
        return f"{self.release} {self.path}\n{difference(self.stock, self.patched)}"


def difference(one: bytes, other: bytes) -> str:
    lines = (data.decode().splitlines(keepends=True) for data in (one, other))
    return "".join(difflib.unified_diff(*lines, n=2))


@dataclass(frozen=True)
class Place:
    """Where statements can go. ``names`` are bound there; ``ends_if``: behind an
    ``if`` without ``else``."""

    line: int
    indent: str
    names: tuple[str, ...]
    ends_if: bool = False


@functools.lru_cache
def places(release: str, path: str) -> tuple[list[str], int, list[Place]]:
    """The lines of a stock file, where its imports end, and where statements can go:
    in every function but those where SGLang's own switches rule."""
    text = (stock(release) / "sglang" / path).read_text()
    tree, lines = ast.parse(text), text.split("\n")
    names = Names(tree)
    top = 0
    while isinstance(tree.body[top], (ast.Import, ast.ImportFrom, ast.Expr)):
        top += 1
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or "envs." in ast.unparse(
            function
        ):
            continue
        known = tuple(one.arg for one in function.args.args) or ("None",)
        for one in inside(function):
            line = lines[one.lineno - 1]
            indent = line[: len(line) - len(line.lstrip())]
            if names.function[one] is not function or len(indent) != one.col_offset:
                continue
            if isinstance(one, ast.If) and not one.orelse:
                found.append(Place(one.end_lineno, indent, known, True))
            if line.strip().startswith("elif"):
                continue
            first = min(
                [one.lineno, *(d.lineno for d in getattr(one, "decorator_list", ()))]
            )
            if not is_text(one):
                found.append(Place(first - 1, indent, known))
            bound = tuple(v.name for v in names.stored[one] if v.kind == "local")
            if isinstance(one, (ast.Assign, ast.AugAssign)) and bound:
                found.append(Place(one.end_lineno, indent, bound))
    return lines, tree.body[top - 1].end_lineno, found


def insert_debug(release: str, path: str, count: int, seed: int) -> Case:
    """A stock file, and the same with ``count`` statements put in."""
    stock_lines, import_end, found = places(release, path)
    choice = random.Random(seed)
    lines, tops = list(stock_lines), []
    chosen = choice.sample(found, min(count, len(found)))
    # from the last line to the first: the places stay right; an else is nearest
    chosen.sort(key=lambda one: (one.line, not one.ends_if), reverse=True)
    for number, place in enumerate(chosen):
        top, piece = "", choice.choice(PIECES)
        if place.ends_if:
            piece = choice.choice(ELSE)
        elif choice.random() < 0.2:
            top, piece = choice.choice(WITH_TOP)
        text = piece.format(x=choice.choice(place.names), n=number)
        lines[place.line : place.line] = _indented(text, place.indent)
        tops += top.format(n=number).split("\n") if top else []
    lines[import_end:import_end] = tops
    before, after = ("\n".join(one).encode() for one in (stock_lines, lines))
    return Case(release, path, before, after)


def _indented(text: str, indent: str) -> list[str]:
    """Each line indented, but the one inside of a string."""
    return [
        line if line.startswith("  is") else indent + line for line in text.split("\n")
    ]


PATCHED = st.builds(
    insert_debug,
    st.sampled_from(RELEASES),
    st.sampled_from(FILES),
    st.integers(1, 6),
    st.integers(0, 2**32),
)


@settings(max_examples=25)
@given(PATCHED)
def test_what_was_only_added_is_taken_out_to_the_byte(case):
    found = engine.apply(RemoveDebugLogging, case.patched, case.path, DUMPS)
    assert found.status is Status.CHANGED, [s.detail for s in found.sites]
    assert not difference(case.stock, found.source)
    assert found.source == case.stock


class _Ungate(ast.NodeTransformer):
    """What the gated code was before."""

    def visit_If(self, node: ast.If):
        self.generic_visit(node)
        if isinstance(node.test, ast.Name) and node.test.id == CONSTANT:
            return node.body
        return node


@settings(max_examples=25)
@given(PATCHED)
def test_gated_code_is_the_same_code_and_is_taken_out_to_the_byte(case):
    found = engine.apply(GateDebugLogging, case.patched, case.path)
    if found.status is Status.NOT_NEEDED:  # all of it behind the variable already
        assert found.source == case.patched
        return
    assert found.status is Status.CHANGED, [s.detail for s in found.sites]
    again = engine.apply(GateDebugLogging, found.source, case.path)
    assert again.source == found.source

    before, after = ast.parse(case.patched), ast.parse(found.source)
    after = _Ungate().visit(after)
    after.body = [
        one
        for one in after.body
        if not (isinstance(one, ast.Assign) and CONSTANT in ast.unparse(one.targets[0]))
    ]
    added = [
        one
        for one in after.body
        if isinstance(one, ast.Import) and one.names[0].name == "os"
    ]
    if added and not any(ast.dump(one) == ast.dump(added[0]) for one in before.body):
        after.body.remove(added[0])
    assert ast.dump(after) == ast.dump(before)

    removed = engine.apply(RemoveDebugLogging, found.source, case.path, DUMPS)
    assert not difference(case.stock, removed.source)
    assert removed.source == case.stock
