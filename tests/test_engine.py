"""The engine against recipes that misbehave, and sources that are odd."""

from __future__ import annotations

import libcst as cst
import pytest

from patchkit import engine
from patchkit.model import Status
from patchkit.recipe import Import, Insertion, Method, Recipe, insert, statements
from patchkit.source import physical_lines

PATH = "srt/models/x.py"
SOURCE = b"""\
import torch


class Model:
    def forward(self, x):
        y = x + 1
        return y
"""


class Base(Recipe):
    edits = {PATH: (Method("site", "Model", "forward", "edit"),)}

    def edit(self, function):
        first = statements(function)[0]
        return insert(function, Insertion(first, after=self.gated(("x",), "f", "y")))


def outcome(recipe, source=SOURCE, **options):
    return engine.apply(recipe, source, PATH, options)


def refusal(recipe, source=SOURCE):
    found = outcome(recipe, source)
    assert found.status is Status.REFUSED
    assert found.source == source
    return found.sites[0].detail


def test_a_good_recipe_changes_only_its_lines():
    found = outcome(Base)
    mark = b"  # patchkit: test-engine\n"
    assert found.source == SOURCE.replace(
        b"y = x + 1\n",
        b"y = x + 1\n        if x:" + mark + b"            f(y)" + mark,
    )
    assert [site.status for site in found.sites] == [Status.CHANGED]


def test_a_recipe_that_raises():
    class Raises(Base):
        def edit(self, function):
            raise RuntimeError("oh")

    assert "RuntimeError: oh" in refusal(Raises)


def test_a_recipe_that_returns_broken_code():
    class Broken(Base):
        def edit(self, function):
            last = statements(function)[-1]
            return insert(
                function, Insertion(last, after=lambda depth: self.lines(["break"]))
            )

    assert "does not compile" in refusal(Broken)


def test_a_recipe_that_changes_a_line_it_does_not_mark():
    class Unmarked(Base):
        def edit(self, function):
            return function.with_changes(name=cst.Name("backward"))

    assert "did not mark" in refusal(Unmarked)


def test_a_recipe_that_is_not_deterministic():
    runs = []

    class Random(Base):
        def edit(self, function):
            runs.append(1)
            first = statements(function)[0]
            build = self.gated(("x",), f"f{len(runs)}")
            return insert(function, Insertion(first, after=build))

    assert "not idempotent" in refusal(Random)


def test_a_whole_file_recipe_that_grows_is_not_idempotent():
    class Grows(Recipe):
        inserts_only = False
        files = (PATH,)

        def transform_module_impl(self, tree):
            return tree.with_changes(body=[*tree.body, *cst.parse_module("a = 1").body])

    assert "not idempotent" in refusal(Grows)


def test_a_whole_file_recipe_keeps_every_other_byte():
    class Renames(Recipe):
        inserts_only = False
        files = (PATH,)

        def transform_module_impl(self, tree):
            class Rename(cst.CSTTransformer):
                def leave_Name(self, original_node, updated_node):
                    if original_node.value == "y":
                        return updated_node.with_changes(value="z")
                    return updated_node

            return tree.visit(Rename())

    odd = SOURCE + b"\nq   =  [1,\n2]   # odd\n\x0c\n"
    found = outcome(Renames, odd)
    assert found.status is Status.CHANGED
    assert found.source == odd.replace(b"y", b"z")
    assert outcome(Renames, found.source).status in (
        Status.ALREADY_APPLIED,
        Status.NOT_NEEDED,
    )


def test_a_file_that_libcst_would_not_print_back_is_refused_only_where_it_matters():
    """LibCST drops a line of ``x = 1\\n\\n   \\n``: outside the slice it can't."""
    lossy = b"x = 1\n\n   \n"
    assert cst.parse_module(lossy).bytes != lossy
    found = outcome(Base, SOURCE + lossy)
    assert found.status is Status.CHANGED
    assert found.source.endswith(lossy)


def test_every_failure_is_reported_and_the_nearest_code_shown():
    class Two(Base):
        edits = {
            PATH: (
                Import("import", "from torch import nn"),
                Method("one", "Model", "backward", "edit"),
                Method("two", "Modle", "forward", "edit"),
            )
        }

    found = outcome(Two)
    assert found.status is Status.ANCHOR_MISSING
    assert [site.name for site in found.failures] == ["one", "two"]
    assert found.failures[0].nearest == "line 5: def forward(self, x):"
    assert found.failures[1].nearest == "line 4: class Model:"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"def f(:\n", "line 1: not valid Python"),
        (b"x = 1\ry = 2\r", "lone CR"),
        (b"# coding: nonsense\n", "encoding can't be told"),
        (b"x = '\xff'\n", "encoding can't be told"),
        (b"# coding: utf-16\nx = 1\n", "not valid utf-16"),
        (b"x = 1\0\n", "NUL"),
        (b"\xff\xfex\x00", "encoding can't be told"),
    ],
)
def test_sources_that_cannot_be_edited(source, said):
    assert said in refusal(Base, source)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8"])
def test_other_encodings_keep_their_bytes(encoding):
    head = f"# -*- coding: {encoding} -*-\n# \u00fcber\n".encode(encoding)
    found = outcome(Base, head + SOURCE)
    assert found.status is Status.CHANGED
    assert found.source.startswith(head)


def test_crlf_stays_crlf():
    found = outcome(Base, SOURCE.replace(b"\n", b"\r\n"))
    assert all(line.endswith(b"\r\n") for line in physical_lines(found.source))


def test_decorated_async_and_nested_definitions():
    source = SOURCE.replace(
        b"    def forward", b"    @torch.no_grad()\n    async def forward"
    ).replace(
        b"        y = x",
        b"        def forward(y):\n            return y\n\n        y = x",
    )
    found = outcome(Base, source)
    assert found.status is Status.CHANGED
    lines = [line.strip() for line in found.source.decode().split("\n")]
    after_nested = lines.index("return y") + 1
    assert lines[after_nested].startswith("if x:")
