"""The workspace of each kind of device, and `winograd` with chunks of a GPU's size."""

import pytest
import torch

from epitomic.ops import winograd, workspace
from epitomic.ops.operands import Grid, Operands


def test_a_gpu_gets_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        total_memory = 8 * 2**30

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    assert workspace.workspace_bytes(torch.device("cuda")) == 2**29
    Properties.total_memory = 80 * 2**30
    assert workspace.workspace_bytes(torch.device("cuda")) == 2**30
    assert workspace.workspace_bytes(torch.device("cpu")) < workspace.workspace_bytes(torch.device("mps"))


def test_chunks_of_winograd_fill_the_workspace_of_other_devices() -> None:
    def chunks(device: str) -> list[int]:
        x, weights = torch.empty(64, 16, 16, 32, device=device), torch.empty(32, 32, 4, 4, device=device)
        grid = Grid.of_patches((16, 16), (4, 4), (3, 3), (2, 2), (0, 0))
        call = winograd._Call(Operands(x, weights, None, None, grid), transformed=1)
        return [chunk.size for chunk in call.chunks(32)]

    assert max(chunks("cpu")) <= winograd.CHUNK_PATCHES
    assert chunks("meta") == [64 * 7 * 7]  # all patches at once
