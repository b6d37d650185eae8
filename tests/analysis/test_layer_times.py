"""Layers are timed without changing the network."""

from __future__ import annotations

from pathlib import Path

import torch

from epitomic.analysis.layer_times import time_layers
from epitomic.training.run_folder import open_run


def test_times_of_layers_leave_the_network_alone(folder: Path) -> None:
    model = open_run(folder).model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    times = time_layers(model, torch.rand(4, 1, 8, 8), repetitions=1)
    leaves = [name for name, module in model.named_modules() if not list(module.children())]
    assert [t.name for t in times] == leaves
    convolutions = [t for t in times if t.type == "EpitomicConv2d"]
    assert len(convolutions) == 3
    assert all(t.forward > 0 and t.backward > 0 for t in convolutions)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
