"""The lock on a folder: one holder, who is named; the kernel releases it; no child inherits it."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from epitomic.support.errors import UserError
from epitomic.support.lock import LOCK, locked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no POSIX locks")
HOLD = """
import os, sys, time
from pathlib import Path
from epitomic.support.lock import locked
with locked(Path(sys.argv[1])):
    child = os.fork() if sys.argv[2] == "fork" else 0
    if sys.argv[2] == "fork" and child == 0:
        time.sleep(60)  # a worker process that outlives the holder
        os._exit(0)
    print(child, flush=True)
    time.sleep(60)
"""


def hold(folder: Path, how: str = "alone") -> tuple[subprocess.Popen[str], int]:
    """Starts a process that holds the lock; returns it and its child, if any."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder), how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_a_second_process_is_told_who_holds_it(tmp_path: Path) -> None:
    holder, _ = hold(tmp_path)
    try:
        with pytest.raises(UserError, match=f"in use: process {holder.pid} on {platform.node()} since"):
            locked(tmp_path).__enter__()
    finally:
        holder.kill()
        holder.wait()
    with locked(tmp_path) as lock:  # the kernel has released it
        assert lock.problem is None


def test_a_worker_that_outlives_the_holder_does_not_keep_it(tmp_path: Path) -> None:
    holder, child = hold(tmp_path, "fork")
    holder.kill()
    holder.wait()
    try:
        with locked(tmp_path) as lock:
            lock.check()
    finally:
        os.kill(child, signal.SIGKILL)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / LOCK).is_file()
    assert not (tmp_path / "a").exists()


def test_a_removed_or_replaced_folder_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with locked(folder) as lock:
        shutil.rmtree(folder)
        with pytest.raises(UserError, match="was removed or replaced"):
            lock.check()
        folder.mkdir()
        (folder / LOCK).touch()
        with pytest.raises(UserError, match="was removed or replaced"):
            lock.check()
    assert (folder / LOCK).exists()  # it is somebody else's


REFUSAL = OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_a_disk_that_cannot_lock_goes_on_and_says_so(tmp_path: Path) -> None:
    with mock.patch("fcntl.lockf", side_effect=REFUSAL), locked(tmp_path) as lock:
        assert lock.problem == "No locks available"
        lock.check()
    assert not list(tmp_path.iterdir())


def test_without_a_lock_a_removed_folder_is_noticed_too(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with mock.patch("fcntl.lockf", side_effect=REFUSAL), locked(folder) as lock:
        folder.rmdir()
        with pytest.raises(UserError, match="was removed or replaced"):
            lock.check()


def test_who_cannot_lock_leaves_the_file_of_the_holder(tmp_path: Path) -> None:
    """Before, it was removed, and the holder ended because its folder was gone."""
    holder, _ = hold(tmp_path)
    try:
        with mock.patch("fcntl.lockf", side_effect=REFUSAL), locked(tmp_path):
            assert (tmp_path / LOCK).read_text().startswith(f"process {holder.pid} on")
        assert (tmp_path / LOCK).exists()
    finally:
        holder.kill()
        holder.wait()


def test_a_full_disk_can_still_lock(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch("os.pwrite", side_effect=full), locked(tmp_path) as lock:
        assert lock.problem is None
        lock.check()
    assert not list(tmp_path.iterdir())


def test_a_disk_whose_files_change_their_numbers_does_not_hang(tmp_path: Path) -> None:
    with mock.patch("os.path.samestat", return_value=False), locked(tmp_path) as lock:
        assert lock.problem == "the disk does not find a file again"
        lock.check()
