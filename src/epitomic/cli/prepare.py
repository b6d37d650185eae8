"""Makes a store of photographs: resized images in shards, with the colour statistics of the training set.

    epitomic prepare ILSVRC/Data/CLS-LOC data/imagenet
    epitomic prepare imagenette-128 data/imagenette --size 128

SRC has train/CLASS/IMAGE and val/CLASS/IMAGE, which training needs, or just CLASS/IMAGE. Repeat an interrupted command
to finish it. Images that cannot be read are listed in DST/bad_images.csv. The exit status is 0 if there are none, 1 if
there are some, and 2 if SRC or DST does not fit.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from epitomic.support.errors import UserError


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("source", metavar="SRC", help="class folders of JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF images")
    parser.add_argument("store", metavar="DST", help="a new folder, or the store that an interrupted call left")
    parser.add_argument("--size", type=int, default=256, metavar="PIXELS", help="short side of images (default: 256)")
    parser.add_argument("--quality", type=int, default=95, metavar="1-100", help="JPEG quality of images (default: 95)")
    parser.add_argument("--workers", type=int, metavar="N", help="number of processes (default: one per core)")
    parser.add_argument("--quiet", action="store_true", help="show nothing but errors (default: show progress)")


def run(args: argparse.Namespace) -> int:
    """Prepares the store and prints what it holds."""
    from epitomic.support.images import SUFFIXES, need_images

    for option, minimum, maximum in (("size", 1, 65500), ("quality", 1, 100), ("workers", 1, 4096)):
        value = getattr(args, option)
        if value is not None and not minimum <= value <= maximum:
            raise UserError(f"--{option} must be from {minimum} to {maximum}, got {value}")
    need_images()
    from epitomic.data.photographs.prepare import prepare
    from epitomic.data.photographs.store import BAD

    source, store = Path(args.source), Path(args.store)
    try:
        made = prepare(source, store, size=args.size, quality=args.quality, workers=args.workers, quiet=args.quiet)
    except KeyboardInterrupt:
        print(f"epitomic: stopped; repeat the command to finish {store}", file=sys.stderr)
        return 130
    if not args.quiet:
        print(f"{made.images:,} images are in {store}")
    if made.ignored and not args.quiet:
        skipped = f"skipped {len(made.ignored)} files and folders that are not CLASS/IMAGE with {', '.join(SUFFIXES)}"
        print(f"epitomic: {skipped}; the first: {made.ignored[0]}", file=sys.stderr)
    if made.bad:
        path, reason = made.bad[0]
        left_out = f"{len(made.bad)} images could not be read and are left out, listed in {store / BAD}"
        print(f"epitomic: {left_out}; the first: {path}: {reason}", file=sys.stderr)
    return 1 if made.bad else 0
