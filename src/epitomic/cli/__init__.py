"""The command line: ``epitomic COMMAND``. One module a command, imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from epitomic._version import __version__
from epitomic.errors import UserError, unknown

# Command -> one line of help. Each has a module here with ``configure(parser)`` and ``run(args) -> exit status``.
COMMANDS = {
    "train": "train a network by a recipe",
    "prepare": "make a store of photographs from class folders",
    "evaluate": "test error and per-class figures of a trained network",
    "transfer": "classify other images by a trained network's features",
    "features": "those features, one vector an image, to a file",
    "models": "the networks: layers, parameters, multiply-adds",
    "filters": "draw the first layer's epitomes, one epitome's filters, or a deeper layer's patches",
    "curves": "draw the convergence of runs, against epochs or seconds",
    "explain": "what each epitomic layer matched on one image, and the image rebuilt",
    "robustness": "error against the shift of the test images",
    "report": "one page on one run or several, in one file",
    "reproduce": "make one of the published tables: every network, every seed",
    "bench": "time the layer against conv2d + max_pool2d, side by side",
    "info": "versions, processor, and which kernels are in use here and why not the others",
}

# What is not installed with the layer alone -> the extra that it is in.
EXTRAS = {
    **dict.fromkeys(
        ("lightning_fabric", "numpy", "pooch", "rich", "safetensors", "sklearn", "tensorboard", "torchmetrics"), "train"
    ),
    **dict.fromkeys(("datasets", "PIL"), "images"),
    "matplotlib": "plots",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status: 0, or 2 for what the user can mend."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(args)
    except UserError as error:
        print(f"epitomic: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(f"epitomic: this needs {error.name}: pip install 'epitomic[{extra}]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("epitomic: interrupted", file=sys.stderr)
        return 130


def _dispatch(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="epitomic",
        description="Epitomic convolution: layers, networks, training and the paper's experiments.",
        epilog="commands:\n" + "".join(f"  {name:<12}{text}\n" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"epitomic {__version__}")
    parser.add_argument("command", metavar="COMMAND", help="one of these; `epitomic COMMAND --help` tells more")
    if not args:
        parser.print_help()
        return 2
    name = parser.parse_args(args[:1]).command
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    module = importlib.import_module(f"epitomic.cli.{name}")
    command = _Parser(
        prog=f"epitomic {name}", description=module.__doc__, formatter_class=_Formatter, allow_abbrev=False
    )
    module.configure(command)
    status: int = module.run(command.parse_args(args[1:]))
    return status


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the options, and which ones are near."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As ``argparse``, but for options that are not there, and for - in place of _ in those that are."""
        values, rest = self.parse_known_args([self._spelled(word) for word in args], namespace)
        if rest and not rest[0].startswith("-"):
            raise UserError(f"one argument too many: {rest[0]!r}; `{self.prog} --help` lists what there is")
        if rest:
            known = [option for option in self._option_string_actions if option.startswith("--")]
            raise unknown("option", rest[0].partition("=")[0], known)
        return values

    def _spelled(self, word: str) -> str:
        """``--batch-size`` as ``--batch_size`` where that is its name, ``--data_dir`` as ``--data-dir``."""
        name, equals, value = word.partition("=")
        spellings = (name, "--" + name[2:].replace("-", "_"), "--" + name[2:].replace("_", "-"))
        known = next((s for s in spellings if s in self._option_string_actions), name) if name[:2] == "--" else name
        return known + equals + value

    def error(self, message: str) -> NoReturn:
        """Instead of the usage and an exit."""
        raise UserError(re.sub(r"^argument (\S+): ", r"\1 ", message))


class _Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults that say something, keeps the description's lines."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        says_nothing = action.default is None or action.default is False
        return action.help if says_nothing else super()._get_help_string(action)
