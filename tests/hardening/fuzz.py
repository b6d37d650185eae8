"""Coverage-guided fuzzing of the parsers that are ours, by atheris: ``make test-fuzz``.

    python -m tests.hardening.fuzz metrics -max_total_time=60

Whatever the bytes, a parser returns or raises `UserError` of one line; anything else ends the run and keeps the file.
Options after the name are libFuzzer's.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["epitomic"]):
    from epitomic.analysis.prediction import class_names
    from epitomic.data.own.tables import list_csv
    from epitomic.data.photographs.color import ColorStatistics
    from epitomic.data.photographs.store import read_index
    from epitomic.data.photographs.table import Table
    from epitomic.data.small.cifar import read_binary
    from epitomic.data.small.idx import read_idx
    from epitomic.support.errors import UserError
    from epitomic.support.files import parse_json, read_sealed
    from epitomic.support.tensorfile import load_tensors
    from epitomic.training.run_schema import check_config, check_facts, check_results, check_transfer, parse_metrics

FOLDER = Path(tempfile.mkdtemp())
FILE = FOLDER / "file"


def on_disk(read: Callable[[Path], object]) -> Callable[[bytes], object]:
    def parse(contents: bytes) -> object:
        FILE.write_bytes(contents)
        return read(FILE)

    return parse


def index(contents: bytes) -> object:
    (FOLDER / "index.json").write_bytes(contents)
    return read_index(FOLDER)


def table(contents: bytes) -> object:
    return Table.from_bytes(contents, "file").problem(3, [100, 100])


PARSERS: dict[str, Callable[[bytes], object]] = {
    "metrics": lambda contents: parse_metrics(contents, FILE),
    "results": lambda contents: check_results(parse_json(contents, FILE), FILE),
    "facts": lambda contents: check_facts(parse_json(contents, FILE), FILE),
    "config": lambda contents: check_config(parse_json(contents, FILE), FILE),
    "transfer": lambda contents: check_transfer(parse_json(contents, FILE), FILE),
    "statistics": lambda contents: ColorStatistics.parse(contents, FILE, "x"),
    "sealed": on_disk(read_sealed),
    "index": index,
    "table": table,
    "tensors": on_disk(load_tensors),
    "idx": on_disk(lambda path: read_idx(path, 1)),
    "cifar": on_disk(read_binary),
    "names": on_disk(lambda path: class_names(("0", "1"), path)),
    "csv": on_disk(list_csv),
}


ROOT = Path(__file__).parents[2]
RUN = ROOT / "results" / "mnist" / "epitomic_small-0"
SEEDS = {  # sound files to begin with
    "metrics": RUN / "metrics.csv",
    "results": RUN / "results.json",
    "facts": RUN / "run.json",
    "config": ROOT / "src/epitomic/weights/epitomic_small-mnist/config.json",
    "sealed": ROOT / "src/epitomic/weights/epitomic_small-mnist/config.json",
    "transfer": ROOT / "results" / "caltech101" / "epitomic-0.json",
    "csv": ROOT / "results" / "robustness-mnist.csv",
}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in PARSERS:
        raise SystemExit(f"name one of {', '.join(PARSERS)}")
    name = sys.argv.pop(1)
    parse = PARSERS[name]
    if name in SEEDS:
        (FOLDER / "seeds").mkdir()
        (FOLDER / "seeds" / "sound").write_bytes(SEEDS[name].read_bytes())
        sys.argv.append(str(FOLDER / "seeds"))

    def test(contents: bytes) -> None:
        try:
            parse(contents)
        except UserError as error:
            if "\n" in str(error):
                raise AssertionError(f"an error of several lines: {error}") from error

    atheris.Setup(sys.argv, test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
