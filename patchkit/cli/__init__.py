"""The command line. The only package that prints and exits.

Everything but click is imported where it is used, so that ``--help`` takes no longer
than click does.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from patchkit import __version__
from patchkit.cli import (
    canary,
    changing,
    drafting,
    looking,
    reading,
    verifying,
    watching,
)
from patchkit.cli.terminal import print_error
from patchkit.errors import CannotRun, PatchkitError, UsageError

BUG = 70


def main() -> None:
    """Entry point of the ``patchkit`` command."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; never raises."""
    as_json = "--json" in arguments
    try:
        code = cli.main(arguments or ["--help"], "patchkit", standalone_mode=False)
        return int(code or 0)
    except click.exceptions.Exit as done:
        return done.exit_code
    except PatchkitError as problem:
        print_error(problem, as_json)
        return problem.exit_code
    except click.ClickException as problem:
        context = getattr(problem, "ctx", None)
        command = context.command_path if context else "patchkit"
        hint = f"{command} --help says what it takes"
        print_error(UsageError(problem.format_message(), hint=hint), as_json)
        return 2
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return 130
    except _ReaderGone:
        # say nothing, not even when the interpreter flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as problem:
        # a full disk behind stdout, a file that vanished: not of our making
        refusal = CannotRun(
            f"the operating system said no: {problem}", hint="try again"
        )
        print_error(refusal, False)  # stdout may be what failed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return refusal.exit_code
    except Exception:
        import traceback

        traceback.print_exc()
        bug = PatchkitError(
            "this is a bug in patchkit, not in what you did",
            hint="report it with the traceback above",
        )
        bug.exit_code = BUG
        print_error(bug, as_json)
        return BUG


class _ReaderGone(Exception):
    """Whoever read stdout (head, less) has seen enough."""


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # click would make it exit code 1, which says that the answer is no
            raise _ReaderGone from None
        return code


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="patchkit")
def cli() -> None:
    """Patch SGLang by syntax tree: insert, gate or remove debug logging and the
    aux-hidden-state capture of EAGLE-3; idempotent, revertible, tracked with git.

    Exit codes: 0 done or nothing to do; 1 the answer is no; 2 usage; 3 refused,
    nothing written; 4 can't run here; 5 time was up (verify, watch); 70 a bug of ours;
    130 interrupted.
    """


for command in (
    looking.list_recipes,
    looking.show,
    looking.status,
    changing.apply,
    changing.reapply,
    looking.diff,
    looking.export,
    looking.show_log,
    changing.revert,
    verifying.verify,
    drafting.check_draft,
    canary.canary,
    watching.watch,
    reading.logs,
    looking.fetch,
):
    cli.add_command(command)
