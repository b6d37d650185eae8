"""The threads that run a pass of the native kernel."""

from __future__ import annotations

import ctypes
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch


class Threads:
    """Torch's own threads where torch uses OpenMP, and Python threads elsewhere.

    OpenMP's threads spin for some milliseconds after each call of torch. Other threads would share the processors with
    them. Neither kind survives a fork, but the child can make new Python threads.
    """

    def __init__(self) -> None:
        openmp = sys.platform != "win32" and "parallel backend: OpenMP" in torch.__config__.parallel_info()
        self.team = getattr(ctypes.CDLL(None), "GOMP_parallel", None) if openmp else None
        self.helpers: ThreadPoolExecutor | None = None

    def call(self, threads: int, function: Any, argument: ctypes.Structure) -> None:
        """Calls ``function(&argument)`` on this many threads at once, or fewer if a thread is not free in time."""
        if threads == 1:
            function(ctypes.byref(argument))
        elif self.team is not None:
            self.team(function, ctypes.byref(argument), threads, 0)
        else:
            self.helpers = self.helpers or ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), "epitomic")
            late = [self.helpers.submit(function, ctypes.byref(argument)) for _ in range(1, threads)]
            try:
                function(ctypes.byref(argument))
            finally:
                for helper in late:
                    if not helper.cancel():
                        helper.result()

    def after_fork(self) -> None:
        """Forgets the threads, which a forked child does not have."""
        self.team = self.helpers = None


THREADS = Threads()
if sys.platform != "win32":
    os.register_at_fork(after_in_child=THREADS.after_fork)
