"""Saving and loading whole networks in the Hugging Face layout: ``config.json`` + ``model.safetensors`` in a folder.

Folders that ship with the package (`list_pretrained`) are named MODEL-SET: the network, and what it was trained on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from epitomic.errors import UserError
from epitomic.files import read_json, write_json
from epitomic.models.registry import create_model, model_options
from epitomic.tensorfile import load_tensors, save_tensors

CONFIG, WEIGHTS = "config.json", "model.safetensors"
SHIPPED = Path(__file__).parents[1] / "weights"


def list_pretrained() -> list[str]:
    """The networks whose weights ship with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def find_pretrained(name: str | Path) -> Path:
    """The folder of a network: ``name`` itself, that of its file ``name``, or one that ships with the package as such.

    Raises:
        UserError: If there is neither.
    """
    if Path(name).is_dir():
        return Path(name)
    if Path(name).name in (CONFIG, WEIGHTS) and Path(name).is_file():
        return Path(name).parent
    if str(name) in list_pretrained():
        return SHIPPED / str(name)
    shipped = ", ".join(list_pretrained()) or "none"
    raise UserError(
        f"no folder {name}: a trained network is a folder that `epitomic train` made, with {CONFIG} and {WEIGHTS}, or "
        f"one that ships with the package: {shipped}"
    )


def save_pretrained(model: nn.Module, folder: str | Path, **extra: Any) -> None:
    """Writes a network that `create_model` made.

    Args:
        model: The network.
        folder: Where to; made if it is not there.
        **extra: More for ``config.json``, such as class names or the images' mean.
    """
    config = getattr(model, "config", None)
    if not isinstance(config, dict):
        raise UserError(f"save_pretrained needs a network that create_model made, got a {type(model).__name__}")
    save_tensors(Path(folder) / WEIGHTS, dict(model.state_dict()), {"config": config})
    write_json(Path(folder) / CONFIG, {"library": "epitomic", **config, **extra})


def describe_pretrained(folder: str | Path, **extra: Any) -> None:
    """Changes what `save_pretrained` noted besides the network, and leaves the weights alone."""
    path = Path(folder) / CONFIG
    write_json(path, {**read_json(path), **extra})


def from_pretrained(folder: str | Path) -> nn.Module:
    """The network that `save_pretrained` wrote to ``folder``, or one of `list_pretrained`, ready for evaluation."""
    folder = find_pretrained(folder)
    name, arguments = read_config(folder)
    try:
        model = create_model(name, **arguments)
    except (UserError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UserError(f"{folder / CONFIG} does not describe a network: {error}") from None
    load_weights(model, folder)
    return model.eval()


def read_config(folder: Path) -> tuple[str, dict[str, Any]]:
    """The network's name, and what to give `create_model` besides."""
    path = folder / CONFIG
    config = read_json(path)
    name = config.get("model")
    if not isinstance(name, str):
        raise UserError(f'{path} names no model: it needs an entry such as "model": "epitomic_small"')
    known = model_options(name)
    return name, {key: value for key, value in config.items() if key in known}


def load_weights(model: nn.Module, folder: str | Path) -> None:
    """Fills ``model`` from ``folder``; a softmax layer for another number of classes stays as it is.

    All of ``config.json``, the images' mean and the class names among it, is then ``model.pretrained_cfg``.
    """
    path = Path(folder) / WEIGHTS
    tensors, _ = load_tensors(path, need_digest=False)
    own = model.state_dict()
    head = tensors.get("out.weight")
    if head is not None and head.dim() == 2 and len(head) != len(own["out.weight"]):
        tensors.update({name: tensor for name, tensor in own.items() if name.startswith("out.")})
    load_state(model, tensors, path)
    model.pretrained_cfg = read_json(Path(folder) / CONFIG)  # type: ignore[assignment]


def load_state(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """``load_state_dict``, with an error that names the file and the first tensor that does not fit."""
    own = model.state_dict()
    for name in sorted(own.keys() | tensors.keys()):
        if name not in tensors:
            raise UserError(f"{path} is of another network: it has no tensor {name!r}")
        if name not in own:
            raise UserError(f"{path} is of another network: this one has no tensor {name!r}")
        if own[name].shape != tensors[name].shape:
            got, fits = tuple(tensors[name].shape), tuple(own[name].shape)
            raise UserError(f"{path} is of another network: its {name!r} has shape {got}, this one's {fits}")
    model.load_state_dict(tensors)
