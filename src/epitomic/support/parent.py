"""Ends a process when the one that started it has ended, however that ended (on Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

VARIABLE = "EPITOMIC_PARENT"  # process id of the parent to end with
PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>


def tied_to_this_process() -> Mapping[str, str]:
    """Returns the environment for a child that shall end with this process."""
    return {**os.environ, VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends, if the parent has asked for that."""
    parent = os.environ.pop(VARIABLE, "")
    if not parent or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if str(os.getppid()) != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGKILL)
