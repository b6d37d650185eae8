"""A lock on a folder, so that two programs do not write into it at once.

The kernel holds the lock and releases it when the process ends, however it ends. A child process does not inherit it:
the lock is a POSIX record lock, which belongs to one process, and it works on network disks that lock. (The catch of
such locks: they end when the process closes any descriptor of the file, so only this module opens it.)
"""

from __future__ import annotations

import errno
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from epitomic.support.errors import UserError
from epitomic.support.machine import timestamp

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

LOCK = "lock"  # name of the file
TAKEN = (errno.EACCES, errno.EAGAIN)  # another process has the lock
SIZE = 1000  # bytes that are read of a lock file
TRIES = 100  # to lock a file that others remove meanwhile


class FolderLock:
    """The lock on a folder, while it is held.

    Attributes:
        problem: Why the disk cannot lock; None if the lock is held.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.problem = folder, None if fcntl else "this system has no such locks"
        self._path = folder / LOCK
        self._descriptor, self._begun = -1, False

    def acquire(self) -> None:
        """Takes the lock. The folder must exist.

        Raises:
            UserError: If another process has it, or the folder cannot be written.
        """
        self._begun = True
        if fcntl is None:
            return
        for _ in range(TRIES):
            self._descriptor = self._try()
            if self._descriptor < 0:
                return
            if _same(self._descriptor, self._path):
                self._note_holder()
                return
            os.close(self._descriptor)  # its last holder removed the file meanwhile
            self._descriptor = -1
        self.problem = "the disk does not find a file again"

    def _try(self) -> int:
        """Returns the descriptor of the file, which is then locked; or -1 if the disk cannot lock."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UserError(f"cannot write {self._path}: {error.strerror}") from None
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _read(descriptor)
            os.close(descriptor)
            if error.errno in TAKEN:
                who = holder.splitlines()[0] if holder else "another process"
                raise UserError(f"{self.folder} is in use: {who} writes into it; wait, or name another") from None
            self.problem = error.strerror or str(error)
            if not holder:  # else another process may hold it, and notices when the file is gone
                with suppress(OSError):
                    self._path.unlink()
            return -1
        return descriptor

    def _note_holder(self) -> None:
        with suppress(OSError):  # the lock holds on a full disk, too
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"process {os.getpid()} on {platform.node()} since {timestamp()}\n".encode(), 0)

    def check(self) -> None:
        """Raises an error if the folder has been removed since the lock was taken, or, if it holds, replaced."""
        there = self.folder.is_dir() if self._descriptor < 0 else _same(self._descriptor, self._path)
        if self._begun and not there:
            raise UserError(f"{self.folder} was removed or replaced while it was written to: nothing more is written")

    def release(self) -> None:
        """Removes the lock file, which ends the lock."""
        self._begun = False
        if self._descriptor >= 0:
            if _same(self._descriptor, self._path):
                with suppress(OSError):
                    self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def locked(folder: Path) -> Iterator[FolderLock]:
    """Locks a folder inside the block. A folder that it had to make, and that stays empty, is removed again."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from None
    lock = FolderLock(folder)
    try:
        lock.acquire()
        yield lock
    finally:
        lock.release()
        with suppress(OSError):
            for path in made:
                path.rmdir()  # an error if something is in it


def _read(descriptor: int) -> str:
    try:
        return os.pread(descriptor, SIZE, 0).decode(errors="replace").strip()
    except OSError:
        return ""


def _same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
