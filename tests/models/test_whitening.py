"""The whitening layers, which are computed from images."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from epitomic.models import create_model
from epitomic.models.whitening import LOCAL, LocalWhitening, Whitening, _covariance
from epitomic.support.errors import UserError


def test_whitened_patches_are_uncorrelated_and_of_equal_size() -> None:
    torch.manual_seed(0)
    images = torch.nn.functional.avg_pool2d(torch.randn(64, 3, 34, 34), 3, 1)  # neighbours are alike
    layer = Whitening(3, eps=0.0)
    with torch.no_grad():
        layer.fit(images)
        layer.bias.zero_()  # type: ignore[union-attr]
        outputs = layer(images)
    half = outputs.shape[1] // 2
    torch.testing.assert_close(outputs[:, :half], -outputs[:, half:])
    torch.testing.assert_close(
        torch.cov(outputs[:, :half].transpose(0, 1).flatten(1)), torch.eye(half), atol=1e-3, rtol=0
    )


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


def test_until_it_is_fit_it_gives_what_it_is_given() -> None:
    images = torch.randn(2, 3, 9, 7)
    assert torch.equal(LocalWhitening(3)(images), images)


def test_the_covariance_of_many_images_is_that_of_all_patches() -> None:
    torch.manual_seed(0)
    images = torch.rand(230, 2, 6, 7)
    patches = F.unfold(images.double(), LOCAL).transpose(0, 1).flatten(1)
    torch.testing.assert_close(_covariance(images, 2, LOCAL), torch.cov(patches, correction=0))


def test_a_channel_that_does_not_vary_becomes_zero() -> None:
    torch.manual_seed(0)
    images = torch.randn(8, 3, 12, 12)
    images[:, 1] = 0.3
    layer = LocalWhitening(3)
    layer.fit(images)
    white = layer(images)
    assert white[:, 1].abs().max() == 0
    torch.testing.assert_close(white[:, ::2, 2:-2, 2:-2].var((0, 2, 3)), torch.ones(2), atol=1e-2, rtol=0)


@pytest.mark.parametrize("kind", [Whitening, LocalWhitening])
@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 1, 8, 8), r"of shape \(N, 3, H, W\), at least . pixels each way, got \(2, 1, 8, 8\)"),
        (torch.zeros(3, 8, 8), r"got \(3, 8, 8\)"),
        (torch.zeros(0, 3, 8, 8), r"got \(0, 3, 8, 8\)"),
        (torch.zeros(2, 3, 8, 1), r"got \(2, 3, 8, 1\)"),
        (torch.full((2, 3, 8, 8), float("nan")), "finite"),
    ],
)
def test_other_images_are_refused(kind: type[Whitening | LocalWhitening], images: torch.Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        kind(3).fit(images)
