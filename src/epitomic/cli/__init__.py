"""The command line: ``epitomic COMMAND``. One module a command, imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from epitomic._version import __version__
from epitomic.errors import UserError, unknown

# Command -> one line of help. Each has a module here with ``configure(parser)`` and ``run(args) -> exit status``.
COMMANDS = {
    "bench": "time the layer against conv2d + max_pool2d, side by side",
    "info": "versions, processor, and which kernels are in use here and why not the others",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status: 0, or 2 for what the user can mend."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(args)
    except UserError as error:
        print(f"epitomic: {error}", file=sys.stderr)
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
    module = importlib.import_module(f"epitomic.cli.{name.replace('-', '_')}")
    command = argparse.ArgumentParser(prog=f"epitomic {name}", description=module.__doc__, formatter_class=_Formatter)
    module.configure(command)
    status: int = module.run(command.parse_args(args[1:]))
    return status


class _Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults, keeps the description's lines."""
