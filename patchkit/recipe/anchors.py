"""Where a recipe edits, and why an anchor could not be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.model import Status


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
    (code moves between releases). So may ``class_name``: the one that has it.
    ``edit(function) -> function`` may only change the function's body. ``absent``: why
    a class without such a method needs nothing.
    """

    site: str
    class_name: str
    function: str
    edit: str
    absent: str = ""

    @property
    def what(self) -> str:
        owners = " or ".join(self.owners)
        return f"{owners}.{self.function.replace(' ', ' or ')}"

    @property
    def owners(self) -> list[str]:
        return self.class_name.split()

    def chosen(self, names: Sequence[str]) -> str:
        """Which of the wanted functions a class with these methods has.

        Raises AnchorMissing if none, Ambiguous if it is defined more than once.
        """
        for wanted in self.function.split():
            if names.count(wanted) > 1:
                owners = " or ".join(self.owners)
                raise Ambiguous(f"{owners}.{wanted} is defined twice")
            if wanted in names:
                return wanted
        if names and self.absent:
            raise NotNeeded(self.absent)
        like = f"def {self.function.split()[0]}(self"
        if not names:
            like = f"class {self.owners[0]}(nn.Module):"
        raise AnchorMissing(f"no {self.what} in this file", like=like)


@dataclass(frozen=True)
class Members:
    """One site among the members of ``class_name``, edited by method ``edit``.

    ``edit(owner) -> owner`` may add, change or remove members.
    """

    site: str
    class_name: str
    edit: str

    @property
    def what(self) -> str:
        return f"class {self.class_name}"

    def check(self, count: int) -> None:
        """Raise AnchorMissing or Ambiguous unless there is one such class."""
        if not count:
            like = f"class {self.class_name}(nn.Module):"
            raise AnchorMissing(f"no {self.what} in this file", like=like)
        if count > 1:
            raise Ambiguous(f"{self.what} is defined twice")


@dataclass(frozen=True)
class Constants:
    """Lines at the top level, below the imports: what method ``edit`` returns.

    ``edit() -> list of physical lines``; none of them may need a name that the
    imports in front of the first class or function do not give. It may raise NotNeeded,
    so it stands behind the edits that tell whether the constants are needed.
    """

    site: str
    edit: str


@dataclass(frozen=True)
class Import:
    """One import line, put where isort would put it in the top-level block."""

    site: str
    line: str

    def goes_before(self, module: str, glued: bool) -> bool:
        """Whether isort would put the line in front of ``from module import ...``.

        Never in front of an import that a comment is glued to: the comment would
        then seem to be about our line. If there is no place, it goes after the last
        import.
        """
        ours = self.line.split()[1]
        same_package = module.split(".")[0] == ours.split(".")[0]
        return same_package and module > ours and not glued


Edit = Method | Members | Import | Constants
