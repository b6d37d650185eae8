"""The counts of parameters and multiply-adds."""

import torch

from epitomic.models import create_model
from epitomic.models.counting import count


def test_only_what_is_learned_counts_as_a_parameter() -> None:
    model = create_model("epitomic_fast", width=0.25)
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert count(model, (3, 32, 32)).parameters == learned < sum(p.numel() for p in model.parameters())


def test_each_layer_has_its_own_parameters() -> None:
    counted = count(create_model("epitomic_small"), (1, 28, 28))
    layers = {layer.name: layer.parameters for layer in counted.layers}
    assert layers["features.layer1.conv"] == 48 * 6 * 6 + 48  # epitomes of 5 + 2 - 1 pixels, a bias each
    assert sum(layers.values()) == counted.parameters


def test_the_dtype_does_not_matter() -> None:
    model = create_model("epitomic_small", image_size=8)
    assert count(model.to(torch.float64), (1, 8, 8)) == count(model.to(torch.float32), (1, 8, 8))
