"""Serves a page in the browser to try a network on: draw a digit, or drop an image.

    epitomic play                                 the network for MNIST that ships with the package
    epitomic play runs/pictures --port 9000

The page shows the classes, the winning positions layer by layer, the epitomes that matched, and the image rebuilt from
them. It works offline and sends nothing anywhere: it listens on this machine alone, unless --host says otherwise.
"""

from __future__ import annotations

import argparse

from epitomic.cli.shared_options import RUN_HELP
from epitomic.support.errors import UserError
from epitomic.support.options import whole

DEFAULT = "epitomic_small-mnist"
PORTS = 65536


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("run", nargs="?", default=DEFAULT, metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; with 0.0.0.0, everybody who can reach this machine can use the page",
    )
    parser.add_argument("--port", type=whole(0), default=8765, metavar="N", help="port; 0 takes a free one")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(args: argparse.Namespace) -> int:
    """Serves the page until Ctrl-C."""
    from epitomic.play.server import LOCAL, PlayServer
    from epitomic.support.images import need_images
    from epitomic.training.run_folder import open_run

    if args.port >= PORTS:
        raise UserError(f"--port must be below {PORTS}, got {args.port}")
    need_images()
    print(f"loading {args.run}", flush=True)
    with PlayServer(open_run(args.run), args.host, args.port) as server:
        who = "this machine alone" if args.host in LOCAL else "everybody who can reach this machine"
        print(f"open {server.address} in a browser ({who} can use it); Ctrl-C ends it", flush=True)
        if args.open:
            import webbrowser

            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")
    return 0
