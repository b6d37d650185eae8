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


def gpu_half_points() -> str:
    """The error of Winograd in half precision, by points, dtype and how it multiplies."""
    rows = read_csv(RESULTS / "gpu" / "half_points.csv")
    ways = (("bfloat16", "bfloat16"), ("bfloat16", "tf32"), ("float16", "float16"), ("float16", "float32"))
    errors = {
        (row["points"], row["dtype"], row["products"]): max(
            float(row[name]) for name in ("responses", "input_gradient", "weight_gradient")
        )
        for row in rows
    }
    points = dict.fromkeys(row["points"] for row in rows)
    head = ("points per axis", *(f"{dtype} input, {products} products" for dtype, products in ways))
    return markdown_table(head, [(n, *(f"{errors[n, *way]:.2g}" for way in ways)) for n in points])


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
    "gpu-half-points": gpu_half_points,
    "gpu-model": gpu_model,
}
