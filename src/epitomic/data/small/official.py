"""Official files of an image set: downloads missing ones, and checks that the files are the official ones."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from torch import Tensor

from epitomic.support.console import Progress
from epitomic.support.errors import UserError
from epitomic.support.files import write_atomically


def fetch(folder: Path, files: dict[str, str], urls: tuple[str, ...], archive: tuple[str, str] | None = None) -> None:
    """Downloads those ``files`` that ``folder`` does not have; existing files are not touched.

    Args:
        folder: Where the files belong.
        files: SHA-256 of each file, by file name.
        urls: Web folders that have the files, tried in turn.
        archive: Name and SHA-256 of the tar file that holds them, if they come in one.

    Raises:
        UserError: If files are missing and cannot be downloaded.
    """
    missing = _missing(folder, files)
    if not missing:
        return
    wanted = {archive[0]: archive[1]} if archive else {name: files[name] for name in missing}
    for name, sha256 in wanted.items():
        for url in urls:
            failure = _download(url + name, sha256, folder / name)
            if failure is None:
                break
        else:
            if not _missing(folder, missing):
                return  # another process unpacked the archive and removed it meanwhile
            raise UserError(
                f"{folder} has no {', '.join(missing)}, and {urls[-1]}{name} cannot be downloaded ({failure}): "
                f"put {'them' if len(missing) > 1 else 'it'} there, or name the folder that has MNIST/raw, "
                "cifar-10-batches-bin and the like with --data-dir"
            )
        if archive:
            _extract(folder / name, folder, missing)


def check_sha256(path: Path, contents: object, sha256: str) -> None:
    """Raises an error that names the file unless its contents are the official ones."""
    got = hashlib.sha256(contents).hexdigest()  # type: ignore[arg-type]
    if got != sha256:
        raise UserError(
            f"{path} is not the official file: its SHA-256 is {got}, not {sha256}; remove it to download it"
        )


def check_labels(path: Path, labels: Tensor, classes: int) -> None:
    """Raises an error that names the file and its first label that is not a class."""
    wrong = (labels >= classes).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise UserError(f"{path}: label {int(labels[first])} of image {first} is not one of 0 to {classes - 1}")


def _missing(folder: Path, names: Iterable[str]) -> list[str]:
    return [name for name in names if not (folder / name).is_file()]


def _download(url: str, sha256: str, path: Path) -> str | None:
    """Downloads one file unless it is there; returns what went wrong, or None."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # the progress display says enough
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with Progress() as progress:
            downloader = pooch.HTTPDownloader(progressbar=_Bar(path.name, progress), chunk_size=1 << 16)
            pooch.retrieve(url, f"sha256:{sha256}", fname=path.name, path=path.parent, downloader=downloader)
    except Exception as error:  # network, libraries and disk raise errors of many kinds
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}".rstrip(": ")
    return None


class _Bar:
    """Our progress display with the attributes that pooch uses; pooch sets ``total``, the number of bytes."""

    total = 0

    def __init__(self, name: str, progress: Progress) -> None:
        self.name, self.progress, self.done = name, progress, 0

    def update(self, count: int) -> None:
        self.done = min(self.done + count, self.total)
        self.progress.update(f"downloading {self.name}: {self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB")

    def reset(self) -> None:
        self.done = 0  # pooch then counts the whole file at once

    def close(self) -> None:
        pass


def _extract(archive: Path, folder: Path, names: list[str]) -> None:
    """Unpacks the regular files called ``names`` from a tar file, whatever folder they have there, and removes it."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                file = tar.extractfile(member) if member.isfile() and name in names else None
                if file is not None:
                    write_atomically(folder / name, partial(Path.write_bytes, data=file.read()))
    except (tarfile.TarError, OSError, EOFError) as error:
        if _missing(folder, names):  # else another process was faster
            raise UserError(f"cannot unpack {archive}: {error}") from None
    archive.unlink(missing_ok=True)
