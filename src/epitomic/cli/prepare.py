"""Makes a store of photographs: short side resized, sharded, with the colour statistics of the training set.

    epitomic prepare ILSVRC/Data/CLS-LOC data/imagenet
    epitomic prepare imagenette-128 data/imagenette --size 128

SRC has train/CLASS/IMAGE and val/CLASS/IMAGE, which training needs, or CLASS/IMAGE. A call that was interrupted goes on
when repeated. Images that cannot be read are listed in DST/bad_images.csv. Exit status: 0 if there are none, 1 if there
are, 2 if SRC or DST does not fit.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from epitomic.errors import UserError
from epitomic.training.progress import LINE_EVERY, duration


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("source", metavar="SRC", help="class folders of JPEG, PNG or WebP images")
    parser.add_argument("store", metavar="DST", help="a new folder, or one that an interrupted call has left")
    parser.add_argument("--size", type=int, default=256, metavar="PIXELS", help="short side of the images")
    parser.add_argument("--quality", type=int, default=95, metavar="1-100", help="of the JPEG files")
    parser.add_argument("--workers", type=int, metavar="N", help="processes; as many as there are cores")
    parser.add_argument("--quiet", action="store_true", help="show nothing but errors")


def run(args: argparse.Namespace) -> int:
    """Prepares, says what came of it."""
    from epitomic.data.pixels import SUFFIXES, need_images

    for option, least, most in (("size", 1, 65500), ("quality", 1, 100), ("workers", 1, 4096)):
        value = getattr(args, option)
        if value is not None and not least <= value <= most:
            raise UserError(f"--{option} must be from {least} to {most}, got {value}")
    need_images()
    from epitomic.data.prepare import prepare
    from epitomic.data.store import BAD

    progress = _Progress(quiet=args.quiet)
    store = Path(args.store)
    try:
        made = prepare(
            Path(args.source),
            store,
            size=args.size,
            quality=args.quality,
            workers=args.workers,
            report=progress.show,
        )
    except KeyboardInterrupt:
        print(f"epitomic: stopped; the same command goes on with {store}", file=sys.stderr)
        return 130
    finally:
        progress.close()
    if not args.quiet:
        print(f"{made.images:,} images are in {store}")
        if made.ignored:
            print(
                f"epitomic: passed by {len(made.ignored)} files and folders that are not CLASS/IMAGE with "
                f"{', '.join(SUFFIXES)}; the first: {made.ignored[0]}",
                file=sys.stderr,
            )
    if made.bad:
        path, reason = made.bad[0]
        print(
            f"epitomic: {len(made.bad)} images could not be read and are left out, listed in {store / BAD}; "
            f"the first: {path}: {reason}",
            file=sys.stderr,
        )
    return 1 if made.bad else 0


class _Progress:
    """A live bar on a terminal, plain lines elsewhere: images done, rate, time left, bad ones."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.began = self.last = time.monotonic()
        self.first: int | None = None  # images that an earlier call has done
        self.bar: Any = None
        if not quiet and sys.stdout.isatty():
            from rich.progress import BarColumn, Progress, TextColumn

            self.bar = Progress(BarColumn(bar_width=24), TextColumn("{task.fields[text]}"), transient=True)
            self.task = self.bar.add_task("", text="")

    def show(self, done: int, total: int, bad: int) -> None:
        """Called several times a second."""
        now = time.monotonic()
        if self.first is None:
            self.first = done
            if self.bar:
                self.bar.start()
        if self.quiet or (not self.bar and now - self.last < LINE_EVERY):
            return
        rate = (done - self.first) / max(now - self.began, 1e-9)
        left = f"  {duration((total - done) / rate)} left" if rate else ""
        text = f"{done:,}/{total:,} images  {rate:,.0f} images/s{left}" + (f"  {bad} bad" if bad else "")
        if self.bar:
            self.bar.update(self.task, total=total, completed=done, text=text)
        else:
            self.last = now
            print(text, flush=True)

    def close(self) -> None:
        """Takes the bar away."""
        if self.bar:
            self.bar.stop()
