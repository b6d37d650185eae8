"""Makes a store of photographs: resized images in shards, with the colour statistics of the training set.

    epitomic prepare ILSVRC/Data/CLS-LOC data/imagenet
    epitomic prepare imagenette-128 data/imagenette --size 128
    epitomic prepare ilsvrc data/imagenet --part 3/16      one of 16 jobs; the same without --part then joins them
    epitomic prepare data/imagenet --upgrade               a store of an older version, in place

SRC has train/CLASS/IMAGE and val/CLASS/IMAGE, which training needs, or just CLASS/IMAGE. Repeat an interrupted command
to finish it. Images that cannot be read are listed in DST/bad_images.csv. The exit status is 0 if there are none, 1 if
there are some, and 2 if SRC or DST does not fit.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from epitomic.support.errors import UserError
from epitomic.support.images import LONGEST_SIDE, SUBSAMPLINGS, SUFFIXES, need_images


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("source", metavar="SRC", help="class folders of JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF images")
    parser.add_argument(
        "store", nargs="?", metavar="DST", help="a new folder, or the store that an interrupted call left"
    )
    parser.add_argument("--size", type=int, default=256, metavar="PIXELS", help="short side of images (default: 256)")
    parser.add_argument("--quality", type=int, default=95, metavar="1-100", help="JPEG quality of images (default: 95)")
    parser.add_argument(
        "--subsampling",
        choices=SUBSAMPLINGS,
        default=SUBSAMPLINGS[0],
        help="resolution of the colours in JPEG. 4:2:0 with --quality 90 takes 24 kB an image instead of 38 and "
        "decodes 1.5x faster, but keeps less: 37 dB instead of 43 (default: 4:4:4, full resolution)",
    )
    parser.add_argument(
        "--part",
        type=_part,
        metavar="I/N",
        help="make only the I-th of N parts, for jobs that run at the same time. The same command without --part then "
        "joins them (default: make all)",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="number of processes (default: one per core)")
    parser.add_argument(
        "--upgrade", action="store_true", help="upgrade the store SRC of an older version; decodes and copies no image"
    )
    parser.add_argument("--quiet", action="store_true", help="show nothing but errors (default: show progress)")


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    part, parts = map(int, match.groups()) if match else (0, 0)
    if not 1 <= part <= parts:
        raise argparse.ArgumentTypeError(f"must be I/N with I from 1 to N, such as 3/16, got {text!r}")
    return part, parts


def run(args: argparse.Namespace) -> int:
    """Prepares the store and prints what it holds."""
    for option, minimum, maximum in (("size", 1, LONGEST_SIDE), ("quality", 1, 100), ("workers", 1, 4096)):
        value = getattr(args, option)
        if value is not None and not minimum <= value <= maximum:
            raise UserError(f"--{option} must be from {minimum} to {maximum}, got {value}")
    need_images(writing=True)
    if args.upgrade:
        return _upgrade(args)
    if args.store is None:
        raise UserError("DST is missing: name a new folder for the store, or the store that an interrupted call left")
    return _prepare(args)


def _upgrade(args: argparse.Namespace) -> int:
    from epitomic.data.photographs.upgrade import upgrade

    if args.store is not None:
        raise UserError(f"--upgrade takes one folder, the store: got {args.source} and {args.store}")
    count = upgrade(Path(args.source), workers=args.workers, quiet=args.quiet)
    if not args.quiet:
        print(f"{args.source} is upgraded: {count:,} images")
    return 0


def _prepare(args: argparse.Namespace) -> int:
    from epitomic.data.photographs.prepare import prepare
    from epitomic.data.photographs.store import BAD

    source, store = Path(args.source), Path(args.store)
    options = {name: getattr(args, name) for name in ("size", "quality", "subsampling", "part", "workers", "quiet")}
    try:
        made = prepare(source, store, **options)
    except KeyboardInterrupt:
        print(f"epitomic: stopped; repeat the command to finish {store}", file=sys.stderr)
        return 130
    if not args.quiet:
        print(f"{made.images:,} images are in {store}" + (_next(args) if args.part else ""))
    if made.ignored and not args.quiet:
        skipped = f"skipped {len(made.ignored)} files and folders that are not CLASS/IMAGE with {', '.join(SUFFIXES)}"
        print(f"epitomic: {skipped}; the first: {made.ignored[0]}", file=sys.stderr)
    if made.bad:
        path, reason = made.bad[0]
        where = "" if args.part else f", listed in {store / BAD}"
        left_out = f"{len(made.bad)} images could not be read and are left out{where}"
        print(f"epitomic: {left_out}; the first: {path}: {reason}", file=sys.stderr)
    return 1 if made.bad else 0


def _next(args: argparse.Namespace) -> str:
    part, parts = args.part
    return f" from part {part}/{parts}; when all parts are done, join them with the same command without --part"
