"""Saving and loading of networks in the Hugging Face layout: a folder with ``config.json`` and ``model.safetensors``.

Folders that ship with the package (`list_pretrained`) are named MODEL-SET, after the network and its training set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from epitomic.models.hub import PREFIX, download, repository_of
from epitomic.models.preprocessing import Preprocessing, PretrainedConfig
from epitomic.models.registry import build_model, model_options
from epitomic.support.errors import UserError, first_line
from epitomic.support.files import read_sealed, write_sealed
from epitomic.support.tensorfile import load_tensors, save_tensors

CONFIG, WEIGHTS = "config.json", "model.safetensors"
SHIPPED = Path(__file__).parents[1] / "weights"


def list_pretrained() -> list[str]:
    """Returns the names of the weights that ship with the package, such as ``"epitomic_small-mnist"``."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def find_pretrained(name: str | Path, *, revision: str | None = None, hub: bool = False) -> Path:
    """Returns the folder of a network.

    Args:
        name: The folder, one of its two files, one of `list_pretrained`, or ``hf://user/name`` on the Hugging Face hub.
        revision: Branch, tag or commit of a network on the hub (default: the newest version).
        hub: Whether ``user/name``, without ``hf://``, is on the hub too. The command line does not assume it, because
            a misspelt folder looks the same.

    Raises:
        UserError: If ``name`` is none of these.
    """
    repository = repository_of(name) if hub or str(name).startswith(PREFIX) else None
    if revision is not None and repository is None:
        raise UserError(f"a revision is for networks on the hub, such as 'user/name', not for {name}")
    if Path(name).is_dir() and revision is None:
        return Path(name)
    if Path(name).name in (CONFIG, WEIGHTS) and Path(name).is_file():
        return Path(name).parent
    if str(name) in list_pretrained():
        return SHIPPED / str(name)
    if repository is not None:
        return download(repository, (CONFIG, WEIGHTS), revision)
    shipped = ", ".join(list_pretrained()) or "none"
    raise UserError(
        f"no folder {name}: a trained network is a folder that `epitomic train` made, with {CONFIG} and {WEIGHTS}, or "
        f"one that ships with the package: {shipped}"
    )


def save_pretrained(model: nn.Module, folder: str | Path, **extra: Any) -> None:
    """Writes a network and its options to a folder.

    Args:
        model: A network that `create_model` made.
        folder: The folder to write to. It is made if it does not exist.
        **extra: More entries of ``config.json``, such as class names or the images' mean.
    """
    config = getattr(model, "config", None)
    if not isinstance(config, dict):
        raise UserError(f"save_pretrained needs a network that create_model made, got a {type(model).__name__}")
    save_tensors(Path(folder) / WEIGHTS, dict(model.state_dict()), {"config": config})
    write_sealed(Path(folder) / CONFIG, {"library": "epitomic", **config, **extra})


def describe_pretrained(folder: str | Path, **extra: Any) -> None:
    """Changes entries of ``config.json`` that `save_pretrained` wrote, and leaves the weights alone."""
    path = Path(folder) / CONFIG
    write_sealed(path, {**read_sealed(path), **extra})


def from_pretrained(name: str | Path, *, revision: str | None = None) -> nn.Module:
    """Loads a trained network for evaluation. Nothing that it loads can run code.

    Args:
        name: A folder that `save_pretrained` or a training wrote, one of `list_pretrained`, or a network on the Hugging
            Face hub, such as ``"user/name"``. A folder of that name comes first.
        revision: Branch, tag or commit of a network on the hub (default: the newest version).

    Raises:
        UserError: If there is no such network, or it cannot be loaded.
    """
    folder = find_pretrained(name, revision=revision, hub=True)
    model_name, options = read_config(folder)
    try:
        model = build_model(model_name, options)
    except (UserError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UserError(f"{folder / CONFIG} does not describe a network: {first_line(error)}") from None
    load_weights(model, folder)
    return model.eval()


def read_config(folder: Path) -> tuple[str, dict[str, Any]]:
    """Reads the name and the options of a network from its folder."""
    path = folder / CONFIG
    config = read_sealed(path)
    name = config.get("model")
    if not isinstance(name, str):
        other = config.get("architectures") or config.get("architecture")  # entries of transformers and of timm
        whose = f"is of another library ({other})" if other else "names no model"
        raise UserError(f'{path} {whose}: a network of epitomic has an entry such as "model": "epitomic_small"')
    try:
        known = model_options(name)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return name, {key: value for key, value in config.items() if key in known}


def load_weights(model: nn.Module, folder: str | Path, *, new_head: bool = False, new_classes: bool = False) -> None:
    """Loads the weights in ``folder`` into ``model``.

    The model's attribute ``pretrained_cfg`` becomes the content of ``config.json``, with types (`PretrainedConfig`),
    and ``preprocess`` turns images into input (`Preprocessing`).

    Args:
        model: The network.
        folder: Folder with the weights.
        new_head: Whether the model keeps its own softmax layer.
        new_classes: Whether it keeps that if the one of the weights has another number of classes.

    Raises:
        UserError: If the weights do not fit the model.
    """
    path = Path(folder) / WEIGHTS
    tensors, _ = load_tensors(path, need_digest=False)
    own = model.state_dict()
    head = tensors.get("out.weight")
    count = None if head is None or head.dim() != 2 else len(head)
    others = count not in (None, len(own["out.weight"]))
    if others and not (new_head or new_classes):
        config_path, said = Path(folder) / CONFIG, len(own["out.weight"])
        raise UserError(
            f"{path} has weights for {count} classes, but {config_path} says {said}: "
            "to begin a new last layer, use create_model with pretrained and num_classes"
        )
    if count is not None and (others or new_head):
        tensors.update({name: tensor for name, tensor in own.items() if name.startswith("out.")})
    load_state(model, tensors, path)
    config: Any = model.config  # the options that it was built with
    try:
        read = PretrainedConfig.read(read_sealed(Path(folder) / CONFIG), config)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{Path(folder) / CONFIG} does not say how images become input: {first_line(error)}") from None
    model.pretrained_cfg = read  # type: ignore[assignment]
    model.preprocess = Preprocessing(read)  # type: ignore[assignment]


def load_state(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Loads ``tensors`` into ``model``. The error names the file and the first tensor that does not fit."""
    own = model.state_dict()
    for name in sorted(own.keys() | tensors.keys()):
        if name not in tensors:
            raise UserError(f"{path} is of another network: it has no tensor {name!r}")
        if name not in own:
            raise UserError(f"{path} is of another network: this one has no tensor {name!r}")
        if own[name].shape != tensors[name].shape:
            got, fits = tuple(tensors[name].shape), tuple(own[name].shape)
            raise UserError(f"{path} is of another network: its {name!r} has shape {got}, this one's {fits}")
        if own[name].is_floating_point() != tensors[name].is_floating_point():
            kind, kinds = (str(t.dtype).removeprefix("torch.") for t in (tensors[name], own[name]))
            raise UserError(f"{path} is of another network: its {name!r} holds {kind}, this one's {kinds}")
    model.load_state_dict(tensors)
