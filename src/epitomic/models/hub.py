"""Networks on the Hugging Face hub: downloads the two files that `save_pretrained` writes, and nothing else.

Neither file can run code: one is JSON, the other safetensors. huggingface_hub keeps them in its cache, so a network is
downloaded once and then loads without a connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from epitomic.support.errors import UserError, first_line

PREFIX = "hf://"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def repository_of(name: str | Path) -> str | None:
    """Returns ``"user/name"`` if that is a name on the hub, also after ``hf://``, and None if it is none.

    A path below a folder that exists here is no name on the hub: it is a misspelt folder.

    >>> repository_of("hf://someone/digits"), repository_of("digits"), repository_of("./runs/digits")
    ('someone/digits', None, None)
    """
    text = str(name)
    if text.startswith(PREFIX):
        check_repository(text.removeprefix(PREFIX))
        return text.removeprefix(PREFIX)
    return text if _NAME.fullmatch(text) and not Path(text).parent.is_dir() else None


def check_repository(repository: str) -> None:
    """Raises an error unless this is a name on the hub."""
    if not _NAME.fullmatch(repository):
        raise UserError(f"a network on the hub is named such as 'user/name', got {repository!r}")


def download(repository: str, files: tuple[str, ...], revision: str | None = None) -> Path:
    """Downloads files of one version of a network, if they are not in the cache, and returns their folder.

    Args:
        repository: The network on the hub, such as ``"user/name"``.
        files: Names of the files.
        revision: Branch, tag or commit (default: the newest version).

    Raises:
        UserError: If there is no such network, or it cannot be reached.
    """
    with hub_errors(repository, revision):
        from huggingface_hub import hf_hub_download

        for file in files:
            path = Path(hf_hub_download(repository, file, revision=revision, library_name="epitomic"))
            revision = path.parent.name  # the commit: all files are of the same version
    return path.parent


@contextmanager
def hub_errors(repository: str, revision: str | None = None) -> Iterator[None]:
    """Turns errors of huggingface_hub into one line that names the network and says what to do."""
    try:
        import huggingface_hub.errors as errors
    except ModuleNotFoundError:
        raise UserError("networks on the hub need huggingface_hub: pip install 'epitomic[hub]'") from None
    try:
        yield
    except errors.RevisionNotFoundError:
        raise UserError(f"{repository} on the hub has no revision {revision!r}") from None
    except errors.LocalEntryNotFoundError:
        problem = "is neither a folder here nor in the hub's cache, and the hub does not answer"
        raise UserError(f"{repository} {problem}") from None
    except errors.EntryNotFoundError as error:
        raise UserError(f"{repository} on the hub is no network of epitomic: {first_line(error)}") from None
    except errors.RepositoryNotFoundError:
        hint = "if it is private, log in by `hf auth login`"
        raise UserError(f"{repository} is neither a folder here nor a network on the hub; {hint}") from None
    except (errors.HfHubHTTPError, errors.HFValidationError, errors.LocalTokenNotFoundError, OSError) as error:
        raise UserError(f"{repository} on the hub: {first_line(error)}") from None
