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
from collections.abc import Iterator, Mapping, Sequence
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
        "uvloop",
        "vllm",
        "xgrammar",
    }
)

#: Why an installed package was replaced: the reports look for this.
BROKEN = "what is installed fails"

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


class Blind(importlib.abc.MetaPathFinder):
    """``finder``, but for the packages ``names``, which it does not find."""

    def __init__(self, finder: Any, names: frozenset[str]) -> None:
        self.finder = finder
        self.names = names

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in self.names:
            return None
        found: importlib.machinery.ModuleSpec | None
        found = self.finder.find_spec(fullname, path, target)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)  # importlib.metadata asks finders, too


def install(ledger: Ledger, instead_of: Mapping[str, str] | None = None) -> None:
    """Let stand-ins take part in every later import of this process.

    ``instead_of``: packages, not imported yet, that get one although they are
    installed, and why.
    """
    names = frozenset(instead_of or ())
    for name, why in (instead_of or {}).items():
        ledger.shim(f"{name}: a stand-in, since {why}")
    if names:
        sys.meta_path[:] = [Blind(one, names) for one in sys.meta_path]
    sys.meta_path.append(StandInFinder(ledger))


def useless_on_cpu() -> dict[str, str]:
    """Installed packages that a CPU has no use for, and why: for ``install``."""
    found = {}
    if "triton" not in sys.modules and importlib.util.find_spec("triton") is not None:
        # Older releases ask it for what newer ones of it have not; and when imported
        # without a driver it takes seconds to find out.
        found["triton"] = "nothing can be launched on a CPU"
    why = why_broken("sgl_kernel")
    if why:
        found["sgl_kernel"] = f"{BROKEN}: {why}"
    return found


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
