"""The figures about the GPU kernels: what the compiler reports, and what a model of the hardware predicts."""

from __future__ import annotations

from collections.abc import Callable

from records import RESULTS, read_csv

from epitomic.support.console import markdown_table


def gpu_kernels() -> str:
    """Registers, spills and shared memory of the Triton kernels, as they were compiled for each GPU."""
    rows = read_csv(RESULTS / "gpu" / "kernels.csv")
    targets = dict.fromkeys(row["target"] for row in rows)
    lines = []
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        cells = [f"`{kernel}`"]
        for target in targets:
            own = [row for row in rows if (row["kernel"], row["target"]) == (kernel, target)]
            registers, shared = (max(int(row[name]) for row in own) for name in ("registers", "shared"))
            spilled = sum(int(row["spills"]) > 0 for row in own)
            cells += [f"{registers}, {shared / 1024:.0f} KiB", f"{spilled} of {len(own)}"]
        lines.append(cells)
    head = ["kernel", *(cell for target in targets for cell in (target, "spilled"))]
    return markdown_table(head, lines)


def gpu_model() -> str:
    """A training step of two layers on two GPUs, worked out."""
    rows = read_csv(RESULTS / "gpu" / "model.csv")
    lines = [
        (
            f"{row['layer']}, {row['precision']}, {row['gpu']}",
            *(f"{float(row[name]):.2f}" for name in ("pair", "direct", "fused", "winograd")),
            f"{float(row['fused']) / float(row['pair']):.2f}",
        )
        for row in rows
    ]
    return markdown_table(
        ("layer", "conv2d + max_pool2d", "`direct`", "`triton`", "`triton_winograd`", "`triton` / pair"), lines
    )


FIGURES: dict[str, Callable[..., str]] = {
    "gpu-kernels": gpu_kernels,
    "gpu-model": gpu_model,
}
