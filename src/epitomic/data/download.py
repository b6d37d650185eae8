"""Fetches missing files of a set, checked by SHA-256, or says which files to put where."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from epitomic.errors import UserError
from epitomic.files import write_atomically


def fetch(folder: Path, files: dict[str, str], urls: tuple[str, ...], archive: tuple[str, str] | None = None) -> None:
    """Makes sure that ``files`` are in ``folder``; what is there already is not touched.

    Args:
        folder: Where they belong.
        files: Name -> SHA-256.
        urls: Folders on the web that have them, tried in turn.
        archive: Name and SHA-256 of the tar file that has them, if they come in one.

    Raises:
        UserError: If they are missing and cannot be had.
    """
    missing = _missing(folder, files)
    if not missing:
        return
    wanted = {archive[0]: archive[1]} if archive else {name: files[name] for name in missing}
    for name, sha256 in wanted.items():
        for url in urls:
            failure = _retrieve(url + name, sha256, folder / name)
            if failure is None:
                break
        else:
            if not _missing(folder, missing):
                return  # another process has unpacked the archive, and removed it under our hands
            raise UserError(
                f"{folder} has no {', '.join(missing)}, and {urls[-1]}{name} cannot be downloaded ({failure}): "
                f"put {'them' if len(missing) > 1 else 'it'} there, or name the folder that has MNIST/raw, "
                "cifar-10-batches-bin and the like with --data-dir"
            )
        if archive:
            _extract(folder / name, folder, missing)


def _missing(folder: Path, names: Iterable[str]) -> list[str]:
    return [name for name in names if not (folder / name).is_file()]


def _retrieve(url: str, sha256: str, path: Path) -> str | None:
    """Downloads one file unless it is there; what went wrong, or None."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # the bar says it all
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        downloader = pooch.HTTPDownloader(progressbar=_Bar(path.name))
        pooch.retrieve(url, f"sha256:{sha256}", fname=path.name, path=path.parent, downloader=downloader)
    except Exception as error:  # whatever the network, the libraries below or the disk came up with
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}".rstrip(": ")
    return None


class _Bar:
    """A progress bar as pooch wants it."""

    total = 0

    def __init__(self, name: str) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self.progress = Progress(*columns)
        self.task = self.progress.add_task(name)

    def update(self, count: int) -> None:
        """``count`` more bytes have come."""
        self.progress.start()
        self.progress.update(self.task, advance=count, total=self.total)

    def reset(self) -> None:
        """Starts again: pooch's way to set a bar right at the end."""
        self.progress.reset(self.task)

    def close(self) -> None:
        """Leaves the bar as it is."""
        self.progress.stop()


def _write(contents: bytes, path: Path) -> None:
    path.write_bytes(contents)


def _extract(archive: Path, folder: Path, names: list[str]) -> None:
    """Takes the regular files called ``names`` out of a tar file, whatever folder it has them in."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                file = tar.extractfile(member) if member.isfile() and name in names else None
                if file is not None:
                    write_atomically(folder / name, partial(_write, file.read()))
    except (tarfile.TarError, OSError, EOFError) as error:
        if _missing(folder, names):  # else another process was faster
            raise UserError(f"cannot unpack {archive}: {error}") from None
    archive.unlink(missing_ok=True)
