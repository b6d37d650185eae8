"""`epitomic doctor`: it passes what is right and names what is wrong."""

import pytest
import torch

from epitomic.bench import doctor
from epitomic.cli import main
from epitomic.ops import compute, verification
from epitomic.ops.direct import match_direct

CPU = torch.device("cpu")


def test_the_table_of_this_machine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "SUBJECTS", doctor.SUBJECTS[-3:])
    assert main(["doctor", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "device      CPU: " in shown
    assert "topographic" in shown
    assert " 0 failed" in shown
    assert "FAIL" not in shown


def test_every_layer_passes_directly_in_float32() -> None:
    for subject in doctor.SUBJECTS:
        trial = subject.trial(torch.float32, CPU)
        assert verification.what_differs(subject.run, "direct", trial, truth="reference") is None, subject.name


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("output", "outputs differ"), ("positions", "winning positions differ"), ("gradient", "gradients of the input")],
)
def test_a_wrong_algorithm_fails(
    wrong: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(x: torch.Tensor, *rest: object) -> object:
        if wrong == "gradient":
            x = 2 * x - x.detach()
        y, positions = match_direct(x, *rest)  # type: ignore[arg-type]
        return (1.01 * y if wrong == "output" else y), (
            1 - positions.clamp(max=1) if wrong == "positions" else positions
        )

    monkeypatch.setitem(compute.BY_FILTERS, "one_convolution", broken)
    monkeypatch.setattr(doctor, "SUBJECTS", doctor.SUBJECTS[:1])
    monkeypatch.setattr(doctor, "DTYPES", {"float32": torch.float32})
    assert main(["doctor", "--device", "cpu"]) == 1
    shown = capsys.readouterr().out
    assert "FAIL: one_convolution, 3x3, pool 2, float32: " in shown
    assert says in shown
