"""Shows what each epitomic layer matched on one image, and the image rebuilt from the first layer's matches.

    epitomic explain runs/mnist digit.png
    epitomic explain runs/cifar10 17                    the test image of this number

An image of another size or mode is converted: its middle square, resized, in grey or colour as the network takes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from epitomic.cli.output import output_stem


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("run", metavar="RUN", help="a run folder")
    parser.add_argument("image", metavar="IMAGE", help="an image file, or the number of a test image")
    parser.add_argument("--out", metavar="STEM", help="writes STEM.png and STEM.svg; RUN/explain-IMAGE if not given")
    parser.add_argument("--data-dir", metavar="DIR", help="where the image sets are; else EPITOMIC_DATA or the cache")


def run(args: argparse.Namespace) -> int:
    """Draws, prints the classes and the reconstruction error."""
    from epitomic.visualisation import explain, explain_figure, open_run, save_figure

    view = open_run(args.run, args.data_dir)
    numbered = args.image.isdigit() and not Path(args.image).exists()
    found = explain(view, int(args.image) if numbered else args.image)
    name = f"test image {args.image}" if numbered else Path(args.image).name
    for index in found.probabilities.topk(min(3, len(found.probabilities))).indices.tolist():
        print(f"{view.classes[index]}: {100 * found.probabilities[index]:.1f} %")
    if not found.matches:
        print(f"{view.model_name} has no epitomic layer: no matches to show, only the classes")
    for rebuilt in found.rebuilt:
        kind = f"the {rebuilt.matches} best matches per patch" if rebuilt.matches else "all matches by response"
        print(f"rebuilt from {kind}: relative error {float(rebuilt.error[0]):.3f}")
    figure = explain_figure(view, found, title=f"{view.model_name} on {name}")
    stem = Path(args.image).stem if not numbered else args.image
    for file in save_figure(figure, args.out or output_stem([args.run], f"explain-{stem}")):
        print(f"wrote {file}")
    return 0
