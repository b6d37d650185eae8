"""Works out a training step of the paper's layers 2 and 6 on GPUs. Nothing is measured.

python benchmarks/gpu_model.py --out results/gpu/model.csv
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from pathlib import Path

from epitomic.bench.gpu_model import MODELLED, Modelled, model
from epitomic.bench.records import write_records
from epitomic.ops.triton.rule import GPUS
from epitomic.support.console import text_table

COLUMNS = [field.name for field in fields(Modelled)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE")
    out = parser.parse_args().out
    found = [model(layer, precision, gpu) for layer in MODELLED for precision in ("bfloat16", "tf32") for gpu in GPUS]
    rows = [[f"{v:.4g}" if isinstance(v, float) else v for v in asdict(one).values()] for one in found]
    print(text_table(COLUMNS, rows, right=range(3, len(COLUMNS))))
    write_records(out, COLUMNS, rows)


if __name__ == "__main__":
    main()
