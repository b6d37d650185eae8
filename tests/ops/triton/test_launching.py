"""Where a kernel is launched, and with which options. Nothing runs."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed (extra gpu-dev, Linux x86-64)")

from epitomic.ops.triton import fused, launches
from epitomic.ops.triton.launches import Launch


def test_a_kernel_is_launched_on_the_device_of_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = []

    def device(where: torch.device) -> contextlib.AbstractContextManager[None]:
        entered.append(where)
        return contextlib.nullcontext()

    monkeypatch.setattr(torch.cuda, "device", device)
    second = torch.device("cuda", 1)
    tensor: Any = SimpleNamespace(device=second)
    fused.on_device_of(tensor)
    assert entered == [second]
    fused.on_device_of(torch.empty(1))
    assert entered == [second]


@pytest.mark.parametrize(("amd", "option"), [(False, {"maxnreg": 255}), (True, {"matrix_instr_nonkdim": 16})])
def test_a_kernel_has_the_options_of_its_launch(
    amd: bool, option: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from epitomic.ops.triton import fused_kernels

    monkeypatch.setattr(launches, "on_amd", lambda: amd)
    launch = Launch("match_forward", (1, 1, 1), {}, {}, 8, 3, launches.matrix_options())
    (config,) = fused.configured(fused_kernels.match_forward, launch).configs
    assert config.all_kwargs() == {"num_warps": 8, "num_ctas": 1, "num_stages": 3, **option}
