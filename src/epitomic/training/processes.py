"""The processes of ``--devices``: copies of this one on the same machine, as torchrun would start them.

Lightning can start them, too, but it leaves them waiting if this process is killed before they are connected, and kills
this process without a word if one of them ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

import torch
from torch._C._distributed_c10d import PrefixStore, TCPStore  # `torch.distributed` has no types for them

from epitomic.support.parent import tied_to_this_process

ADDRESS = "127.0.0.1"
STARTED = "EPITOMIC_STARTED"  # variable that says that a process was started here
POLL = 0.02  # seconds


def connect_own(backend: str, processes: int, limit: timedelta) -> None:
    """Starts the other processes, waits for them, and connects all.

    Raises:
        RuntimeError: If one of them ends before it is connected, or the time is over.
    """
    store = TCPStore(ADDRESS, 0, is_master=True, timeout=limit, wait_for_workers=False)
    ranks = {"LOCAL_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": str(processes)}
    os.environ.update(ranks, MASTER_ADDR=ADDRESS, MASTER_PORT=str(store.port))  # for Lightning
    others = [_start(rank) for rank in range(1, processes)]
    end = time.monotonic() + limit.total_seconds()
    while not store.check([_here(rank) for rank in range(1, processes)]):
        if any(other.poll() is not None for other in others):
            raise RuntimeError("a process ended before it was connected")
        if time.monotonic() > end:
            raise RuntimeError("timed out: a process did not connect")
        time.sleep(POLL)
    _join(store, backend, 0, processes, limit)


def join_starter(backend: str, processes: int, limit: timedelta) -> None:
    """Connects this process, which `connect_own` of another has started, to all others."""
    rank = int(os.environ["LOCAL_RANK"])
    store = TCPStore(ADDRESS, int(os.environ["MASTER_PORT"]), is_master=False, timeout=limit)
    store.set(_here(rank), "")
    _join(store, backend, rank, processes, limit)


def _here(rank: int) -> str:
    return f"process {rank} is here"


def _join(store: TCPStore, backend: str, rank: int, processes: int, limit: timedelta) -> None:
    shared = PrefixStore("devices", store)
    torch.distributed.init_process_group(backend, store=shared, rank=rank, world_size=processes, timeout=limit)


def _start(rank: int) -> subprocess.Popen[bytes]:
    environment = {**tied_to_this_process(), STARTED: "1", "LOCAL_RANK": str(rank)}
    return subprocess.Popen([*_program(), *sys.argv[1:]], env=environment)


def _program() -> Sequence[str]:
    """The words that have started this process, without its arguments."""
    main = sys.modules["__main__"]
    if main.__spec__ is None:
        return sys.executable, os.path.abspath(sys.argv[0])
    return sys.executable, "-m", main.__spec__.name.removesuffix(".__main__")
