"""Let every process of the server write its Python stacks when it gets SIGUSR2.

Where py-spy may not look into the ranks (no ptrace in a container, or a user without
privileges), ``patchkit watch`` still wants to say where each of them hangs. With
``PATCHKIT_STACK_DUMP=1`` the patched server registers Python's own ``faulthandler`` on
SIGUSR2: then ``kill -USR2 PID`` makes that process write the stacks of all its threads
to its log, and go on. It works while the process hangs in C code, too; it does not
while it is stopped.

Marked lines go below the imports of ``srt/managers/scheduler.py``, in all releases:
every rank imports that file, and the server's first process does. Each says once, on
stderr, that it listens; ``patchkit watch`` signals only processes that said so, since
SIGUSR2 ends any other.

The gate is EAGLE3_DEBUG, like that of the taps; PATCHKIT_STACK_DUMP, where it is set,
counts instead of it, so that stacks can be had without the taps and the taps without
stacks. With both unset nothing is registered, and SIGUSR2 does what it always did.
It takes no options and changes no line of SGLang's.
"""

from patchkit.recipe import Constants, Recipe


class StackDump(Recipe):
    version = 1
    summary = "write the Python stacks of a rank on SIGUSR2, gated"
    releases = "0.4.6 - 0.5.23, recognised by shape"
    next_step = (
        "restart the server with PATCHKIT_STACK_DUMP=1; then kill -USR2 PID, or"
        " patchkit watch, shows where a rank hangs"
    )
    environment = (
        (
            "PATCHKIT_STACK_DUMP",
            "1: SIGUSR2 writes stacks; 0: it does not; unset: as EAGLE3_DEBUG says",
        ),
    )
    sites = {"register": "on SIGUSR2: the Python stacks of all threads, on stderr"}
    edits = {
        "srt/managers/scheduler.py": (Constants("register", "register"),),
    }

    def register(self) -> list[str]:
        return [
            "import faulthandler",
            "import os",
            "import signal",
            "import sys",
            "",
            '_STACKS = os.environ.get("EAGLE3_DEBUG", "")',
            '_STACKS = os.environ.get("PATCHKIT_STACK_DUMP", _STACKS)',
            'if _STACKS.lower() not in ("", "0", "false", "no", "off"):',
            "    _STACKS_TO = sys.__stderr__",
            "    faulthandler.register(signal.SIGUSR2, _STACKS_TO)",
            '    _STACKS_SAY = f"SIGUSR2, pid {os.getpid()}"',
            '    print("patchkit stack-dump:", _STACKS_SAY, file=_STACKS_TO)',
        ]
