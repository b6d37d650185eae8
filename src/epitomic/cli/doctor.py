"""Checks every algorithm on this machine's device against the paper's equations, and prints a table for an issue.

    epitomic doctor                      the GPU if there is one, else the CPU
    epitomic doctor --device mps         another device

Each algorithm computes a grid of small layers in four dtypes, forward and backward. The exit status is 1 if any result
is wrong. If you have a GPU, please paste the output into an issue: we have none to test on.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

from epitomic.bench.doctor import Finding, count_findings, examine
from epitomic.cli.info import facts_table
from epitomic.cli.shared_options import add_device
from epitomic.ops.choice import ALGORITHMS
from epitomic.support.console import Progress, text_table
from epitomic.support.devices import describe_device, open_device


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_device(parser)


def run(args: argparse.Namespace) -> int:
    """Runs all checks and prints what passes, what fails and how long each layer takes."""
    device = open_device(args.device)
    with Progress(count_findings()) as progress:
        findings = list(examine(device, progress))
    print(facts_table())
    print(f"{'device':<12}{describe_device(device, args.device)}\n")
    print(_table(findings))
    failed = [f for f in findings if f.verdict == "FAIL"]
    for finding in failed:
        print(f"FAIL: {finding.algorithm}, {finding.subject}, {finding.dtype}: {finding.detail}")
    reasons = dict.fromkeys(f.detail for f in findings if f.verdict == "not served")
    print("\nnot served:" if reasons else "", *(f"  {reason}" for reason in reasons), sep="\n")
    passed = sum(f.verdict == "pass" for f in findings)
    print(f"{passed} passed, {len(failed)} failed, {len(findings) - passed - len(failed)} not served")
    if device.type != "cpu":
        print("please paste this into an issue: it is how the GPU kernels get tested")
    return 1 if failed else 0


def _table(findings: list[Finding]) -> str:
    """One line for each layer and dtype: milliseconds of a training step by algorithm, ``FAIL`` or ``-``."""
    rows: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for f in findings:
        shown = {"pass": f"{f.milliseconds or 0:.2f}", "FAIL": "FAIL", "not served": "-"}
        rows[f.subject, f.dtype][f.algorithm] = shown[f.verdict]
    head = ("layer", "dtype", *(f"{name} ms" for name in ALGORITHMS[2:]))
    cells = [(*key, *(row[name] for name in ALGORITHMS[2:])) for key, row in rows.items()]
    return text_table(head, cells, right=range(2, len(head)))
