"""Uploads a trained network with a model card to the Hugging Face hub.

    epitomic push runs/digits someone/digits --license mit
    epitomic push runs/digits someone/digits --out to_look_at

The weights, config.json and the model card are uploaded, and nothing else of the run folder. With --out, they are
written to a folder instead. Log in first, by `hf auth login`. To load the network: hf://someone/digits.
"""

from __future__ import annotations

import argparse

from epitomic.cli.shared_options import RUN_HELP


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("name", metavar="NAME", help="name on the hub, such as someone/digits")
    parser.add_argument(
        "--license", metavar="NAME", help="licence of the weights, such as mit (default: none is named)"
    )
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    parser.add_argument(
        "--out", metavar="DIR", help="write the files to this folder, and upload nothing (default: upload)"
    )


def run(args: argparse.Namespace) -> int:
    """Uploads the network and prints its address."""
    from epitomic.sharing import push_to_hub, save_for_hub

    if args.out is not None:
        save_for_hub(args.run, args.out, args.name, license=args.license)
        print(f"wrote {args.out}")
    else:
        print(push_to_hub(args.run, args.name, private=args.private or None, license=args.license))
    return 0
