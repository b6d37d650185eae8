"""`push_to_hub`: uploads a network with its model card to the Hugging Face hub."""

from __future__ import annotations

import tempfile
from pathlib import Path

from torch import nn

from epitomic.models.hub import check_repository, hub_errors
from epitomic.models.pretrained import CONFIG, WEIGHTS, find_pretrained, save_pretrained
from epitomic.sharing.card import model_card
from epitomic.support.errors import UserError
from epitomic.support.files import write_atomically, write_text
from epitomic.training.run_folder import RunFolder, open_run

CARD = "README.md"


def save_for_hub(
    source: nn.Module | str | Path, folder: str | Path, repository: str = "user/name", *, license: str | None = None
) -> None:
    """Writes what `push_to_hub` uploads to a folder: ``config.json``, ``model.safetensors`` and the model card.

    Args:
        source: A run folder, one of `list_pretrained`, or a network that `create_model` made.
        folder: The folder to write to. It must be empty or not exist.
        repository: Name on the hub, which the card mentions.
        license: Licence of the weights, as the hub spells it, such as ``"mit"``. None: the card names none.
    """
    check_repository(repository)
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder: name another")
    if isinstance(source, nn.Module):
        known = dict(getattr(source, "pretrained_cfg", {}))
        options = getattr(source, "config", {})
        # Figures and history of weights that were loaded do not hold for a network that may have learnt since.
        kept = {key: value for key, value in known.items() if key not in ("library", "trained", *options)}
        if known.get("num_classes") != options.get("num_classes"):
            kept.pop("classes", None)
        save_pretrained(source, folder, **kept)
        run = RunFolder(folder)
    else:
        run = open_run(find_pretrained(source))
        for name in (CONFIG, WEIGHTS):
            contents = (run.folder / name).read_bytes() if run.model else b""
            write_atomically(folder / name, lambda path, contents=contents: path.write_bytes(contents))  # type: ignore[misc]
    write_text(folder / CARD, model_card(run, repository, license=license))


def push_to_hub(
    source: nn.Module | str | Path,
    repository: str,
    *,
    private: bool | None = None,
    license: str | None = None,
    token: str | None = None,
) -> str:
    """Uploads a network with a model card to the Hugging Face hub. `from_pretrained` loads it from there.

    The weights, ``config.json`` and the card are uploaded, and nothing else of a run folder.

    Args:
        source: A run folder, one of `list_pretrained`, or a network that `create_model` made.
        repository: Name on the hub, such as ``"user/name"``. It is made if it does not exist.
        private: Whether only its owner sees a new repository (default: as the account is set).
        license: Licence of the weights, as the hub spells it, such as ``"mit"``. None: the card names none.
        token: Access token (default: the one that `hf auth login` stored).

    Returns:
        Address of the upload.
    """
    check_repository(repository)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "network"
        save_for_hub(source, folder, repository, license=license)
        with hub_errors(repository):
            from huggingface_hub import HfApi

            hub = HfApi(token=token, library_name="epitomic")
            hub.create_repo(repository, private=private, exist_ok=True)
            done = hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="Upload by epitomic")
    return str(done.commit_url)
