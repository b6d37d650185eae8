"""Compiles every Triton kernel for GPUs that are not here, and keeps registers, spills and shared memory.

    python benchmarks/triton_kernels.py --out results/gpu/kernels.csv

The exit status is 1 if a kernel spills, takes too much shared memory or lacks matrix instructions. It takes about 20
minutes on one core. `make test` compiles a few of the kernels, `make test-long` all of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from epitomic.bench.gpu_compile import TARGETS, Compiled, compile_all, jobs
from epitomic.bench.gpu_launches import LAYERS, PRECISIONS
from epitomic.bench.records import write_records
from epitomic.support.console import Progress


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", default=list(LAYERS), choices=LAYERS, metavar="NAME")
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--kernels", nargs="+", metavar="NAME", help="kernels to compile (default: all)")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    todo = jobs(args.layers, args.precisions, args.targets)
    todo = [job for job in todo if not args.kernels or job.planned.launch.kernel in args.kernels]
    found: list[Compiled] = []
    with Progress(len(todo)) as progress:
        for one in compile_all(todo):
            found.append(one)
            progress.update(f"{one.kernel} for {one.target}", progress.done + 1)
            for problem in one.problems:
                print(f"{one.kernel} of {one.layer} in {one.precision} for {one.target} {problem}", flush=True)
    wrong = sum(bool(one.problems) for one in found)
    print(f"{len(found)} kernels for {', '.join(args.targets)}: {wrong} with problems")
    if args.out:
        write_records(args.out, Compiled._fields, found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
