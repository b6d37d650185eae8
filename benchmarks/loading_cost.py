"""Times loading a checkpoint, a run and weights, against an older commit, alternately: what the checks cost.

    python benchmarks/loading_cost.py --before COMMIT --out results/hardening.md

Both versions run in processes that stay; each is asked in turn. The table has the median of 50 loads.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.hardening.page import write_section  # noqa: E402

from epitomic.support.console import markdown_table  # noqa: E402

SERVER = """
import sys, time
from pathlib import Path
import torch
from epitomic.models import from_pretrained
from epitomic.training.checkpoint import Checkpoints
from epitomic.training.run_folder import RunFolder
torch.set_num_threads(1)
run = Path(sys.argv[1])

def open_run():
    found = RunFolder(run)
    return found.read_recipe(), found.recipe, found.facts, found.config, found.results, found.metrics

loads = {
    "a checkpoint": lambda: Checkpoints(run / "checkpoints").load(),
    "a run": open_run,
    "weights": lambda: from_pretrained(run),
    "weights that ship": lambda: from_pretrained("epitomic_small-mnist"),
}
for line in sys.stdin:
    began = time.perf_counter()
    loads[line.strip()]()
    print(time.perf_counter() - began, flush=True)
"""
LOADS = ("a checkpoint", "a run", "weights", "weights that ship")


def environment(source: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(source), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}


def train(source: Path, run: Path) -> None:
    recipe = ("digits", "--epochs", "1", "--threads", "1", "--no-report", "--quiet")
    words = [sys.executable, "-m", "epitomic", "train", *recipe, "--out", str(run)]
    subprocess.run(words, check=True, env=environment(source))


def start(source: Path, run: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", SERVER, str(run)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environment(source))


def ask(server: subprocess.Popen[str], load: str) -> float:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(load + "\n")
    server.stdin.flush()
    return float(server.stdout.readline())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="commit to compare with")
    parser.add_argument("--loads", type=int, default=50, help="loads of each kind (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="page to write the table to (default: none)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = subprocess.run(
            ["git", "-C", ROOT, "archive", args.before, "src"], check=True, capture_output=True
        ).stdout
        (folder / "before").mkdir()
        subprocess.run(["tar", "-x", "-C", folder / "before"], input=archive, check=True)
        servers = []
        for source in (folder / "before" / "src", ROOT / "src"):  # each reads a run of its own version
            run = folder / f"run-{len(servers)}"
            train(source, run)
            servers.append(start(source, run))
        rows, good = [], True
        for load in LOADS:
            for server in servers:
                ask(server, load)  # warms up
            pairs = [[ask(server, load) for server in servers] for _ in range(args.loads)]
            before, now = (1000 * statistics.median(times) for times in zip(*pairs, strict=True))
            good = good and now - before <= max(5.0, 0.05 * before)
            rows.append(
                [load, f"{before:.2f}", f"{now:.2f}", f"{now - before:+.2f}", f"{100 * (now / before - 1):+.1f}"]
            )
        for server in servers:
            server.kill()
    table = markdown_table(("load", "before, ms", "now, ms", "difference, ms", "difference, %"), rows)
    print(table)
    if args.out:
        text = f"Medians of {args.loads} loads of each kind, one thread, alternately at {args.before} and now:\n"
        write_section(args.out, "Cost of the checks", text, table, " ".join(["python", *sys.argv]))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
