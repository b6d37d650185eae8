"""What a unit sees, against the gradient of the image."""

from __future__ import annotations

import pytest
import torch

from epitomic.analysis.receptive_fields import receptive_windows
from epitomic.models import create_model


@pytest.mark.parametrize("name", ["epitomic_small", "maxpool_small", "maxout_small", "topographic_small_norm"])
def test_windows_hold_all_that_a_unit_sees(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, image_size=28, conv_dropout=0.0).double()
    x = torch.randn(1, 1, 28, 28, dtype=torch.float64, requires_grad=True)
    windows = receptive_windows(model, x.detach())
    reached: dict[str, torch.Tensor] = {}
    features = model.get_submodule("features")
    for layer in ("layer1", "layer2", "layer3"):
        y = features[: int(layer[-1])](x)  # type: ignore[index]
        (grad,) = torch.autograd.grad(y[0, :, 1, 1].sum(), x)
        reached[layer] = grad[0, 0].abs().amax(1).nonzero()[:, 0]
    for layer, rows in reached.items():
        window = windows[f"features.{layer}.conv"]
        first = window.start + window.step
        assert rows.min() >= max(0, first)
        assert rows.max() < first + window.size
