"""The figures about the input of photographs, from results/image-input-*: measured ones, and what follows from them."""

from __future__ import annotations

from records import RESULTS, Rows, read_csv

from epitomic.support.console import markdown_table

TRAIN, VAL = 1_281_167, 50_000  # images of ImageNet
WIDER = 4 / 3  # pixels of a photograph of 4:3 for each pixel of a square one
GPU = 1000  # images/s that one GPU takes, as an example


def _read(machine: str, file: str) -> Rows:
    """Reads a record; it is empty if nothing was measured yet."""
    path = RESULTS / f"image-input-{machine}" / f"{file}.csv"
    return read_csv(path) if path.is_file() else []


def _measured(row: dict[str, str]) -> str:
    return f"\nMeasured at commit {row['commit'][:7]}: medians of {row['n']} repetitions.\n"


def _stored(rows: Rows, quality: int, subsampling: str) -> dict[str, str]:
    return next(row for row in rows if (row["quality"], row["subsampling"]) == (str(quality), subsampling))


def loaders(machine: str) -> str:
    """One worker of each loader."""
    rows = _read(machine, "loaders")
    if not rows:
        return "Not measured yet.\n"
    head = ("loader, decoder", "worker, us/image", "all processes, us/image", "images per core second, relative")
    cells = (
        [
            *(row["loader"], row["worker_us"], row["total_us"]),
            f"{float(row['relative']):.2f} ({float(row['relative_q1']):.2f}-{float(row['relative_q3']):.2f})",
        ]
        for row in rows
    )
    return f"{markdown_table(head, cells)}{_measured(rows[0])[:-2]}, with {rows[0]['others']}.\n"


def stores(machine: str) -> str:
    """Opening and reading with a cold cache."""
    rows = _read(machine, "store")
    head = ("cold cache", "store", "time", "processor time", "read from disk", "memory at its peak")
    cells = []
    for row in rows:
        read, size, needed = (int(row[key]) for key in ("bytes_read", "store_bytes", "bytes_needed"))
        if row["what"] == "open":
            share = f"{read / 1e6:.1f} MB, {100 * read / size:.2f} % of the store"
            memory = f"{(int(row['peak_memory_bytes']) - int(row['table_bytes'])) / 1e6:.0f} MB beyond the table"
        else:
            share = f"{read / needed:.2f} times the bytes of the images"
            memory = f"{int(row['peak_memory_bytes']) / 1e6:.0f} MB"
        store = f"{int(row['images']):,} images, {size / 1e9:.1f} GB"
        cells.append([row["what"], store, *(f"{float(row[key]):.2f} s" for key in ("seconds", "core_seconds"))])
        cells[-1] += [share, memory]
    return markdown_table(head, cells) + _measured(rows[0])


def jpeg(machine: str) -> str:
    """Size, loss and decoding time of stored images."""
    rows = _read(machine, "jpeg")
    head = ("`--quality`", "`--subsampling`", "kB an image", "PSNR, dB", "decoding, us", "speed of decoding")
    cells = (
        [
            *(row[key] for key in ("quality", "subsampling", "kb", "psnr_db", "decode_us")),
            f"{float(row['relative']):.2f}x",
        ]
        for row in rows
    )
    return markdown_table(head, cells) + _measured(rows[0])


def plan(machine: str) -> str:
    """Memory, disk and cores for ImageNet: each line says whether it was measured or worked out."""
    stored, store, prepared = (_read(machine, file) for file in ("jpeg", "store", "prepare"))
    cores = {row["loader"]: float(row["worker_us"]) * 1e-6 for row in _read(machine, "loaders")}
    core_seconds = float(prepared[0]["core_ms"]) / 1000
    large = max((row for row in store if row["what"] == "open"), key=lambda row: int(row["images"]))
    rows = [
        (
            "disk: the prepared store",
            " or ".join(
                f"{(TRAIN + VAL) * float(_stored(stored, *setting)['kb']) * WIDER / 1e6:.0f} GB ({name})"
                for setting, name in (((95, "4:4:4"), "as prepared"), ((90, "4:2:0"), "4:2:0, quality 90"))
            ),
            "worked out: kB of a square image x 4/3 for photographs of 4:3 x 1.33 million",
        ),
        (
            "memory: the table of the training set",
            f"{int(large['table_bytes']) / 1e6:.0f} MB in each training process, shared with its workers",
            f"measured with {int(large['images']):,} images",
        ),
        (
            "`epitomic prepare`",
            f"{(TRAIN + VAL) * core_seconds / 3600:.1f} core hours",
            f"worked out: {1000 * core_seconds:.1f} ms of a core for an image of 500 x 375, measured",
        ),
    ]
    for gpus in (1, 8) if cores else ():
        needs = [
            f"{gpus * GPU * cores[loader] * wider:.1f}"
            for loader in ("epitomic", "epitomic, 4:2:0")
            for wider in (1, WIDER)
        ]
        rows.append(
            (
                f"cores of workers for {gpus} GPU{'s' * (gpus > 1)} ({gpus * GPU:,} images/s)",
                f"{needs[0]} to {needs[1]}; {needs[2]} to {needs[3]} with 4:2:0",
                "worked out: core time of one worker, for square images to photographs of 4:3",
            )
        )
    if cores:
        note = f"The cores are for GPUs that take {GPU:,} images/s each. For 4,000, take four times as many.\n"
    else:
        note = "The cores of the workers for a GPU are not measured here yet. The command above measures them.\n"
    return f"{markdown_table(('what', 'how much', 'how we know'), rows)}\n{note}"


FIGURES = {"input-loaders": loaders, "input-stores": stores, "input-jpeg": jpeg, "input-plan": plan}
