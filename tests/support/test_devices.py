"""Which device ``auto`` takes, and what a run says about it."""

import pytest
import torch

from epitomic.support.console import counted
from epitomic.support.devices import describe_device, open_device, resolve_accelerator
from epitomic.support.errors import UserError


@pytest.mark.parametrize(("cuda", "taken"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_a_gpu_if_there_is_one(cuda: bool, taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_accelerator("auto") == taken  # never mps
    assert resolve_accelerator("mps") == "mps"


def test_the_line_says_what_was_taken_and_why() -> None:
    cpu = torch.device("cpu")
    threads = counted(torch.get_num_threads(), "thread")
    assert describe_device(cpu, "auto").startswith("CPU: ")
    assert describe_device(cpu, "auto").endswith(f"{threads} (no CUDA or ROCm device found)")
    assert describe_device(cpu, "cpu", 2).endswith(f"{threads}, 2 processes")


def test_a_device_that_is_not_there_is_an_error() -> None:
    assert open_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="cannot use --device nonsense here"):
        open_device("nonsense")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="cannot use --device cuda here"):
            open_device("cuda")
