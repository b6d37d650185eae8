"""Which calls the Triton kernels serve, and what they say otherwise."""

import re
import subprocess
import sys

import pytest
import torch

from epitomic import epitomic_conv2d, max_pool_conv2d, winograd_conv2d
from epitomic.ops.triton import served
from epitomic.ops.triton.served import TRITON, why_not_triton

CUDA = torch.device("cuda")


@pytest.mark.parametrize("algorithm", TRITON)
def test_cpu_tensors_are_refused_with_a_reason(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    x, weight = torch.randn(1, 2, 8, 8), torch.randn(3, 2, 4, 4)
    match = f"algorithm='{algorithm}' cannot serve this call: it needs .*; use 'direct' or 'auto'"
    with pytest.raises(ValueError, match=match):
        epitomic_conv2d(x, weight, kernel_size=3, algorithm=algorithm)
    with pytest.raises(ValueError, match=match):
        max_pool_conv2d(x, weight, pool_size=2, algorithm=algorithm)


def test_without_triton_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "has_triton", lambda: False)
    reason = why_not_triton("triton", (2, 2), (4, 4), 100, torch.float32, CUDA)
    assert reason == "it needs the package triton, which is not installed"


def test_an_old_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "has_triton", lambda: True)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 5))
    served._why_not_gpu.cache_clear()
    try:
        reason = why_not_triton("triton", (2, 2), (4, 4), 100, torch.float32, CUDA)
    finally:
        served._why_not_gpu.cache_clear()
    assert reason == "it needs compute capability 8.0 or later, and this GPU has 7.5"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": torch.float64}, "float32, float16 or bfloat16, .* torch.float64"),
        ({"pool": (17, 16)}, "256 positions .* 17 . 16"),
        ({"algorithm": "triton_winograd", "points": (9, 4)}, "8 points .*9, 4"),
        ({"elements": 2**31}, "2147483648"),
        ({"device": torch.device("meta")}, "CUDA or ROCm .* meta"),
    ],
)
def test_refusals_name_what_they_got(change: dict[str, object], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "has_triton", lambda: True)
    fits = {
        "algorithm": "triton",
        "pool": (2, 2),
        "points": (9, 9),
        "elements": 100,
        "dtype": torch.float16,
        "device": CUDA,
    }
    assert why_not_triton(**fits) is None  # type: ignore[arg-type]
    got = why_not_triton(**fits | change)  # type: ignore[arg-type]
    assert got is not None
    assert re.search(reason, got)


def test_plain_convolutions_are_left_to_torch() -> None:
    x, weight = torch.randn(1, 2, 8, 8), torch.randn(3, 2, 3, 3)
    expected = torch.nn.functional.conv2d(x, weight)
    for algorithm in TRITON:
        assert torch.equal(winograd_conv2d(x, weight, algorithm=algorithm), expected)


def test_asking_does_not_import_triton() -> None:
    code = (
        "import sys, torch, epitomic; from epitomic.ops.triton.served import why_not_triton;"
        "why_not_triton('triton', (2, 2), (4, 4), 9, torch.float32, torch.device('cuda'));"
        "assert 'triton' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
