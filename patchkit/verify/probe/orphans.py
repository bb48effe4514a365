"""No process outlives the one that made it, whatever ends that."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent``, which made it, is gone.

    Linux only; elsewhere a process that outlives its parent ends when its pipes do.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was faster
        os._exit(1)
