"""The network of Krizhevsky et al. (2012)."""

import torch

from epitomic.models import count, create_model


def test_alexnet() -> None:
    with torch.device("meta"):
        model = create_model("alexnet")
    total = count(model, (3, 227, 227))
    assert total.parameters == 60_965_224  # the known figure of the two-group network
    outputs = {layer.name: layer.output for layer in total.layers}
    assert outputs["features.layer1.pool"] == (96, 27, 27)
    assert outputs["features.layer2.pool"] == (256, 13, 13)
    assert outputs["features.layer5.conv"] == (256, 6, 6)
