"""What patchkit raises: a sentence, a next step, and the exit code it maps to."""

from __future__ import annotations


class PatchkitError(Exception):
    """A refusal that a person can act on.

    ``message`` is one sentence, ``hint`` the next step, ``details`` further lines
    (every file and anchor that failed, a conflict, ...). Only ``cli`` exits with
    ``exit_code``.
    """

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "", details: tuple[str, ...] = ()):
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details


class UsageError(PatchkitError):
    """The command names something that does not exist: a recipe, an option."""

    exit_code = 2


class Refused(PatchkitError):
    """The request can't be carried out safely; nothing was written."""

    exit_code = 3


class Conflict(Refused):
    """The user's own edit overlaps what would be written; nothing was written."""


class JournalError(Refused):
    """The journal can't be read, or a newer patchkit wrote it."""


class Busy(Refused):
    """Another patchkit holds the lock of this target."""


class CannotRun(PatchkitError):
    """Something this command needs is missing on this machine."""

    exit_code = 4
