"""The command line: ``epitomic COMMAND``. Each command has a module here, which is imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from epitomic._version import __version__
from epitomic.ops.library import NATIVE
from epitomic.support import clock
from epitomic.support.errors import UserError, unknown, worker_lost
from epitomic.support.parent import end_with_parent
from epitomic.training.exit import end_process

# What a person wants -> command -> what comes out of it.
# The module of a command has ``configure(parser)`` and ``run(args) -> exit status``.
GROUPS = {
    "train and test": {
        "prepare": "turn folders of photographs into a store that training reads",
        "train": "train a network by a recipe: a folder with weights, curves and a report",
        "evaluate": "test a trained network: its error, and the figures of each class",
        "transfer": "classify other images by a network's features: accuracy over random splits",
        "robustness": "shift the test images: a table and a picture of the error at each shift",
    },
    "use": {
        "predict": "the classes that a network finds in images, with probabilities",
    },
    "look": {
        "play": "a page in the browser to draw a digit or drop an image, and see what matches",
        "report": "a web page, in one file, about one run or several",
        "curves": "a picture of how runs converge, over epochs or over time",
        "filters": "a picture of a layer's epitomes, filters or favourite patches",
        "explain": "a picture of what each layer matched in one image, and the image rebuilt",
        "diagram": "pictures that explain what an epitome is",
    },
    "deploy": {
        "models": "a list of the networks: layers, parameters, multiply-adds",
        "features": "a file with one feature vector for each image",
        "export": "one file that runs without this package: ONNX, torch.export or AOTInductor",
        "push": "upload a network and its model card to the Hugging Face hub",
    },
    "reproduce": {
        "reproduce": "a table of the paper: trains every network with every seed",
    },
    "this machine": {
        "info": "versions, processor, and which kernels are in use here",
        "doctor": "checks of every algorithm on this device, and a table to paste into an issue",
        "tune": "the fastest algorithm of each layer of a network here, remembered for training",
        "bench": "timings of the layer against conv2d + max_pool2d, side by side",
    },
}
COMMANDS = [name for commands in GROUPS.values() for name in commands]

SLOW = ("train", "evaluate", "transfer", "features", "reproduce", "tune", "bench")  # slow without the native kernel
LONG = (*SLOW, "report", "predict", "robustness", "explain")  # may say nothing for two seconds after their start

# Package that the layer alone does not need -> the extra that installs it.
EXTRAS = {
    **dict.fromkeys(("lightning_fabric", "numpy", "pooch", "rich", "safetensors", "sklearn", "tensorboard"), "train"),
    **dict.fromkeys(("datasets", "PIL", "pyarrow"), "images"),
    "huggingface_hub": "hub",
    **dict.fromkeys(("onnx", "onnxruntime", "onnxscript"), "onnx"),
    "torchao": "pt2e",
    "matplotlib": "plots",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status, which is 2 for errors that the user can mend.

    Without ``argv``, the command is this process's own, and a training that used several processes ends the process.
    """
    end_with_parent()
    if argv is None and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files need not be UTF-8
    args = list(sys.argv[1:] if argv is None else argv)
    clock.begin(process=argv is None)
    if argv is None and args and args[0] in LONG and not {"--quiet", "--help", "-h"} & {*args}:
        print(f"epitomic {args[0]}: starting", file=sys.stderr, flush=True)  # the imports may take seconds
    status = _run(args)
    if argv is None:
        end_process(status)
    return status


def _run(args: list[str]) -> int:
    try:
        return _dispatch(args)
    except UserError as error:
        print(f"epitomic: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker (pid"):  # torch raises this at any moment, also in a step
            raise
        print(f"epitomic: {worker_lost(error)}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is None:
            raise
        print(f"epitomic: cannot use {error.filename}: {error.strerror}", file=sys.stderr)
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
    groups = (
        f"{title}:\n" + "".join(f"  {name:<12}{text}\n" for name, text in commands.items())
        for title, commands in GROUPS.items()
    )
    parser = argparse.ArgumentParser(
        prog="epitomic",
        usage="epitomic COMMAND [options]",
        description="Epitomic convolution: the layer, its networks, their training, and the paper's experiments.",
        epilog="\n".join(groups) + "\n`epitomic COMMAND --help` explains a command and its options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"epitomic {__version__}", help="show the version")
    parser.add_argument("command", metavar="COMMAND", help="one of the commands below")
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
    arguments = (_shown(action) for action in command._get_positional_actions())
    command.usage = " ".join([command.prog, *arguments, "[options]"])  # the help lists the options below
    values = command.parse_args(args[1:])
    if args[0] in SLOW and NATIVE.reason.startswith("not built"):
        print(f"epitomic: this will be slow: the native kernel is {NATIVE.reason}", file=sys.stderr)
    status: int = module.run(values)
    return status


class _Parser(argparse.ArgumentParser):
    """Parses a command's options, and says in one line what is wrong with them."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses as argparse does; accepts underscores in options, and suggests names for unknown ones."""
        values, rest = self.parse_known_args([self._spelled(word) for word in args], namespace)
        if rest and not rest[0].startswith("-"):
            raise UserError(f"one argument too many: {rest[0]!r}; `{self.prog} --help` lists the arguments")
        if rest:
            known = [option for option in self._option_string_actions if option.startswith("--")]
            raise unknown("option", rest[0].partition("=")[0], known)
        return values

    def _spelled(self, word: str) -> str:
        """Returns ``--batch-size`` for ``--batch_size``."""
        name, equals, value = word.partition("=")
        dashed = name.replace("_", "-")
        return dashed + equals + value if dashed in self._option_string_actions else word

    def error(self, message: str) -> NoReturn:
        """Raises the error instead of printing the usage and exiting."""
        raise UserError(re.sub(r"^argument (\S+): ", r"\1 ", message))


def _shown(action: argparse.Action) -> str:
    """Returns an argument as the usage line shows it."""
    return {"?": f"[{action.metavar}]", "+": f"{action.metavar} ..."}.get(str(action.nargs), str(action.metavar))


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Ends an option's help with its default, unless there is none or the help names it already."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        says_nothing = any(action.default is value for value in (None, False, argparse.SUPPRESS))
        if says_nothing or "(default:" in (action.help or ""):
            return action.help
        default = " ".join(action.default) if isinstance(action.default, list) else action.default
        return f"{action.help} (default: {default})"
