"""The import system of zygote and workers: what is deferred, and what is overlaid.

A worker takes a few modules from files outside the target (patched, baseline or
mutated); the zygote must not have imported these, nor anything that holds a name of
theirs. ``Preload`` imports all the rest.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from patchkit.verify.probe.environment import Loaded, TargetLoader


class Deferred(BaseException):
    """An import reached an overlaid module.

    No ``Exception``: SGLang guards many of its imports with ``except Exception``.
    """


class OverlayFinder(importlib.abc.MetaPathFinder):
    """Stands first. ``deferred`` modules can't be imported until a worker has set
    ``files``; a module whose file is ``None`` looks absent."""

    def __init__(self, deferred: Iterable[str]) -> None:
        self.deferred = frozenset(deferred)
        self.files: Mapping[str, str | None] | None = None
        self.loaded: Loaded = lambda module: None

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if self.files is None:
            if fullname in self.deferred:
                raise Deferred(fullname)
            return None
        if fullname not in self.files:
            return None
        file = self.files[fullname]
        if file is None:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        package = Path(file).name == "__init__.py"
        return importlib.util.spec_from_file_location(
            fullname,
            file,
            loader=TargetLoader(fullname, file, self.loaded),
            submodule_search_locations=[str(Path(file).parent)] if package else None,
        )


class Preload:
    """Imports what ``roots`` need, except what depends on a deferred module.

    Importing a module that does raises ``Deferred`` and leaves what it had imported
    by then; its remaining imports are then made one by one. ``dependents`` are left
    to each worker: some ten modules of several hundred (0.4.9 to 0.5.23).
    """

    def __init__(self, parent: Path, deferred: Iterable[str]) -> None:
        self.parent = parent
        self.deferred = frozenset(deferred)
        self.dependents: list[str] = []
        self.failed: list[str] = []
        self._seen: set[str] = set()

    def run(self, roots: Iterable[str]) -> None:
        for name in [*sorted(self.deferred), *roots]:
            self._import(name)

    def _import(self, name: str) -> None:
        if name in self._seen or name in sys.modules or self._file(name) is None:
            return
        self._seen.add(name)
        if name not in self.deferred:
            try:
                importlib.import_module(name)
                return
            except Deferred:
                self.dependents.append(name)
            except Exception as error:
                # A cycle entered from another side than usual; the worker, which
                # enters as SGLang does, says so if it is a real one.
                self.failed.append(f"{name}: {type(error).__name__}: {error}")
                return
        for needed in self._imports(name):
            self._import(needed)

    def _file(self, name: str) -> Path | None:
        base = self.parent.joinpath(*name.split("."))
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                return file
        return None

    def _imports(self, name: str) -> Iterator[str]:
        """Modules of the target that ``name`` imports at its top level."""
        file = self._file(name)
        assert file is not None
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        try:
            body = ast.parse(file.read_bytes()).body
        except (SyntaxError, ValueError):  # a worker will say so
            return
        for node in body:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    with contextlib.suppress(ImportError):
                        base = importlib.util.resolve_name(
                            "." * node.level + base, package
                        )
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
