from __future__ import annotations

import pytest
import torch

from epitomic.errors import UserError
from epitomic.models import count, create_model
from epitomic.models.whitening import LocalWhitening

SMALL = ["epitomic_small", "epitomic_small_norm", "topographic_small_norm", "maxpool_small", "maxout_small"]

SHARED = ("features.layer1.dropout", "features.layer2.dropout", "features.layer3.dropout", "layer4.linear")


@pytest.mark.parametrize("size", [8, 9, 13, 28, 32, 64])
def test_all_have_the_same_shape(size: int) -> None:
    shapes = set()
    for name in SMALL:
        model = create_model(name, image_size=size, in_channels=3)
        outputs = {layer.name: layer.output for layer in count(model, (3, size, size)).layers}
        shapes.add(tuple(outputs[name] for name in SHARED))
    assert len(shapes) == 1


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("batch_norm", [False, True])
def test_learns_a_batch(name: str, batch_norm: bool) -> None:
    torch.manual_seed(0)
    model = create_model(name, image_size=8, width=0.5, dropout=0.0, conv_dropout=0.0, batch_norm=batch_norm)
    images, labels = torch.randn(16, 1, 8, 8), torch.arange(16) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(40):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3


def test_whitening_is_taken_from_images_and_not_learned() -> None:
    torch.manual_seed(0)
    images = torch.nn.functional.avg_pool2d(9 * torch.randn(32, 3, 18, 18), 3, 1)  # neighbours are alike
    model = create_model("epitomic_small", in_channels=3, image_size=16, width=0.25, whiten=True)
    torch.testing.assert_close(model.eval()(images), _without_whitening(model)(images))  # nothing to whiten by yet
    model.fit(images)  # type: ignore[operator]
    whitening = model.whitening
    assert isinstance(whitening, LocalWhitening)
    assert not whitening.weight.requires_grad
    white = whitening(images)
    assert white.shape == images.shape
    inside = white[:, :, 2:-2, 2:-2]  # where the patches are whole
    torch.testing.assert_close(inside.var((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)
    assert _neighbours(images) > 0.5 > 0.1 > abs(_neighbours(inside))
    torch.testing.assert_close(model(images), _without_whitening(model)(white))
    torch.testing.assert_close(whitening.undo(white), images, atol=1e-2, rtol=0)


def _neighbours(images: torch.Tensor) -> float:
    """Correlation of horizontally neighbouring pixels."""
    pairs = torch.stack((images[..., 1:].flatten(), images[..., :-1].flatten()))
    return float(torch.corrcoef(pairs)[0, 1])


def _without_whitening(model: torch.nn.Module) -> torch.nn.Module:
    plain = create_model("epitomic_small", in_channels=3, image_size=16, width=0.25).eval()
    plain.load_state_dict({name: t for name, t in model.state_dict().items() if not name.startswith("whitening")})
    return plain


def test_memory_format_does_not_change_the_result() -> None:
    model = create_model("epitomic_small", in_channels=3, image_size=16).eval()
    images = torch.randn(4, 3, 16, 16)
    assert torch.allclose(model(images), model(images.to(memory_format=torch.channels_last)), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image_size": 7}, "from 8 to 64"),
        ({"image_size": 65}, "from 8 to 64"),
        ({"num_classes": 0}, "num_classes"),
        ({"dropout": 1.0}, "dropout"),
        ({"conv_dropout": -0.1}, "conv_dropout"),
        ({"width": 0.0}, "width"),
        ({"batch_nrom": True}, "did you mean 'batch_norm'"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_model("epitomic_small", **arguments)  # type: ignore[arg-type]


def test_unknown_model() -> None:
    with pytest.raises(UserError, match="did you mean 'epitomic_small'"):
        create_model("epitomic_smal")
