"""The command that times: its table, its files and its errors."""

import csv
import os
import sys
from pathlib import Path

import pytest
import torch

from epitomic.bench.cases import CASES, FUSED, PAIR, Case
from epitomic.bench.contest import LayerResult
from epitomic.bench.timing import Sample
from epitomic.cli import main
from epitomic.ops.choice import has_bfloat16_instructions

SMALL = Case("small", 4, 6, 3, 2, 2, size=9, batch=2)


def test_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(CASES, "small", SMALL)
    threads, out = torch.get_num_threads(), ["--out", str(tmp_path)]
    assert main(["bench", "--cases", "small", "--repetitions", "2", "--no-memory", "--no-compile", *out]) == 0
    assert torch.get_num_threads() == threads
    assert "speed-up (quartiles)" in capsys.readouterr().out
    with (tmp_path / "bench.csv").open() as file:
        rows = list(csv.DictReader(file))
    ours = [("auto", "float32"), (FUSED, "float32")]
    if has_bfloat16_instructions():
        ours += [(what, "bfloat16") for what in (PAIR, "auto", FUSED)]
    contestants = [(*one, mode, "2") for one in ours for mode in ("forward", "training")]
    assert [(r["algorithm"], r["dtype"], r["mode"], r["n"]) for r in rows] == contestants
    assert all(float(r["speedup"]) > 0 and r["torch"] == torch.__version__ for r in rows)

    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_float32_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(CASES, "small", SMALL)
    words = ["bench", "--cases", "small", "--repetitions", "1", "--no-memory", "--no-compile", "--no-bfloat16"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    with (tmp_path / "bench.csv").open() as file:
        assert {row["dtype"] for row in csv.DictReader(file)} == {"float32"}


@pytest.fixture
def no_timing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of a benchmark that times nothing; its one result is made up."""
    sample = Sample((1.0, 2.0))
    result = LayerResult(
        SMALL, "forward", "auto", False, "float32", "contiguous", sample, "contiguous", sample, sample, 1.0, 2.0
    )
    monkeypatch.setattr("epitomic.cli.bench.run_contest", lambda *_, **__: [result])
    return ["bench", "--cases", "4x4, pool 2", "--no-memory"]


def test_without_matplotlib_there_is_no_picture(
    no_timing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([*no_timing, "--out", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["bench.csv"]
    assert "bench.png" not in capsys.readouterr().out


def test_a_broken_picture_is_an_error(no_timing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "epitomic.bench.picture", None)  # importing it fails
    with pytest.raises(ImportError):
        main([*no_timing, "--out", str(tmp_path)])


def test_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from epitomic.bench.image_input import can_evict, worker_counts
    from epitomic.data.photographs.prepare import prepare
    from tests.photographs import make_folders

    monkeypatch.setattr("epitomic.bench.image_input._images_in", lambda *_: 48)  # instead of a second's worth
    store = tmp_path / "store"
    prepare(make_folders(tmp_path / "in"), store, size=24, workers=1)
    words = ["bench", "--input", str(store), "--crop", "16", "--networks", "epitomic_small", "--seconds", "1"]
    assert main([*words, "--repetitions", "1", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "cores of workers" in told
    assert "epitomic_small  trains here" in told
    with (tmp_path / "input.csv").open() as file:
        rows = list(csv.DictReader(file))
    steps = 4 + len(worker_counts(os.cpu_count() or 1))
    assert [row["cold"] for row in rows] == ["False"] * steps + ["True"] * steps * can_evict()
    assert all(float(row["rate"]) > 0 and float(row["core_us"]) > 0 for row in rows)
    rates = {row["step"]: float(row["rate"]) for row in rows if row["cold"] == "False" and row["workers"] == "0"}
    assert rates["read"] > rates["read, decode, crop"]  # the second does the first and more


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--crop", "25"], "--crop 25 does not fit: the short side of the images in "),
        (["--networks", "epitomc"], "unknown network 'epitomc'"),
    ],
)
def test_input_refuses(words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from epitomic.data.photographs.prepare import prepare
    from tests.photographs import make_folders

    prepare(make_folders(tmp_path / "in", 1, 1), tmp_path / "store", size=24, workers=1)
    assert main(["bench", "--input", str(tmp_path / "store"), *words]) == 2
    assert says in (told := capsys.readouterr().err)
    assert told.count("\n") == 1
    assert main(["bench", "--input", str(tmp_path / "none")]) == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("more", [[], ["--networks"]])
def test_no_cuda_device_is_one_line(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--device", "cuda", *more]) == 2
    told = capsys.readouterr().err
    assert "cannot use --device cuda here" in told
    assert told.count("\n") == 1


def test_the_device_reaches_the_contest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The GPU is played by the meta device, which computes nothing."""
    devices: list[torch.device] = []
    monkeypatch.setitem(CASES, "small", SMALL)

    def timed(function: object, device: torch.device) -> float:
        devices.append(device)
        return 1.0

    monkeypatch.setattr("epitomic.bench.timing.timed", timed)
    monkeypatch.setattr("epitomic.cli.bench.open_device", torch.device)
    words = ["--no-compile", "--no-bfloat16", "--repetitions", "1"]
    assert main(["bench", "--device", "meta", "--cases", "small", *words, "--out", str(tmp_path)]) == 0
    assert set(devices) == {torch.device("meta")}
    with (tmp_path / "bench.csv").open() as file:
        assert {row["device"] for row in csv.DictReader(file)} == {"meta"}


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--cases", "paper layer 7"]) == 2
    assert "unknown case 'paper layer 7': did you mean 'paper layer" in capsys.readouterr().err
    assert main(["bench", "--algorithms", "winogad"]) == 2
    assert "did you mean 'winograd'" in capsys.readouterr().err
    assert main(["bench", "--networks", "epitomic_smal"]) == 2
    assert "unknown network 'epitomic_smal': did you mean 'epitomic_small'" in capsys.readouterr().err
    assert main(["bnech"]) == 2
    assert "unknown command 'bnech': did you mean 'bench'?" in capsys.readouterr().err
