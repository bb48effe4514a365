"""Import-time stand-ins for compiled packages that can't be imported here.

The finder is the last one python asks, so a package that is installed is used as it
is. Only an import that nothing guards gets a stand-in: inside ``try: … except
ImportError`` and for ``importlib.util.find_spec`` the package is missing, since
SGLang then has an answer of its own, and a stand-in would hide it.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from patchkit.verify.probe.ledger import Ledger, is_machinery
from patchkit.verify.probe.placeholders import Shelf

#: Compiled packages that some release from 0.4.6 to 0.5.23 imports unguarded.
COMPILED = frozenset(
    {
        "cuda",
        "cutlass",
        "sgl_kernel",
        "torchvision",
        "triton",
        "tvm_ffi",
        "vllm",
        "xgrammar",
    }
)

_GUARDS = frozenset({"ImportError", "ModuleNotFoundError", "Exception"})


class StandInModule(types.ModuleType):
    """A module whose every attribute exists; see ``placeholders``."""

    def __init__(self, name: str, shelf: Shelf) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__version__ = "0.0.0+standin"
        self.__dict__["_shelf"] = shelf

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = self.__dict__["_shelf"].attribute(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last resort of an import: a stand-in for ``COMPILED``, else nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.shelf = Shelf(ledger)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top not in COMPILED:
            return None
        # Below a stand-in everything exists; a real package's missing submodule
        # stays missing.
        if rest and not isinstance(sys.modules.get(top), StandInModule):
            return None
        if not rest and _is_guarded():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        self.ledger.create(spec.name)
        return StandInModule(spec.name, self.shelf)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class BrokenFinder(importlib.abc.MetaPathFinder):
    """Stands first, and sends imports of ``names`` to ``standins``: what is installed
    under these can't be imported."""

    def __init__(self, names: frozenset[str], standins: StandInFinder) -> None:
        self.names = names
        self.standins = standins

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.names:
            return None
        spec = self.standins.find_spec(fullname, path, target)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return spec


def install(ledger: Ledger, trial: Iterable[str] = ()) -> None:
    """Let stand-ins take part in every later import of this process.

    ``trial``: packages that get one also if they are installed but can't be imported:
    compiled for a GPU, say, whose driver is not here.
    """
    finder = StandInFinder(ledger)
    sys.meta_path.append(finder)
    broken = {name: why for name in trial if (why := why_broken(name))}
    for name, why in broken.items():
        ledger.shim(f"{name}: a stand-in, since what is installed fails: {why}")
    if broken:
        sys.meta_path.insert(0, BrokenFinder(frozenset(broken), finder))


def why_broken(name: str) -> str:
    """Why package ``name``, which is installed, can't be imported; "" if it can, or is
    not installed. A child of this process tries."""
    if importlib.util.find_spec(name) is None:
        return ""
    inlet, outlet = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inlet)
        try:
            importlib.import_module(name)
        except BaseException as problem:
            text = " ".join(f"{type(problem).__name__}: {problem}".split())
            os.write(outlet, text[:300].encode())
        os._exit(0)
    os.close(outlet)
    with os.fdopen(inlet, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    return said or ("" if status == 0 else "its import ends the process")


def _is_guarded() -> bool:
    """Whether whoever imports expects that the package may be missing."""
    frame: Any = sys._getframe(2)
    while frame is not None and is_machinery(frame.f_code.co_filename):
        # importlib.util.find_spec only asks; its module is frozen from 3.11 on.
        if frame.f_code.co_filename.endswith(("importlib/util.py", "importlib.util>")):
            return True
        frame = frame.f_back
    if frame is None:
        return False
    return any(
        first <= frame.f_lineno <= last
        for first, last in _guarded_lines(frame.f_code.co_filename)
    )


@cache
def _guarded_lines(filename: str) -> tuple[tuple[int, int], ...]:
    """Line ranges of ``filename`` inside a ``try`` that expects an ImportError."""
    try:
        tree = ast.parse(Path(filename).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple(_try_bodies(tree))


def _try_bodies(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(map(_catches_import, node.handlers)):
            yield node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno


def _catches_import(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(names & _GUARDS)
