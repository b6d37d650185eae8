"""The image rebuilt from the winning filters, exact where it must be."""

from __future__ import annotations

import pytest
import torch

from epitomic import EpitomicConv2d
from epitomic.analysis.matches import Match, match_layers
from epitomic.analysis.reconstruction import reconstruct


def matched(layer: EpitomicConv2d, x: torch.Tensor) -> Match:
    _, (match,) = match_layers(torch.nn.Sequential(layer), x)
    return match


def signed_layer(normalize: bool, channels: int = 2) -> EpitomicConv2d:
    """Epitomes of ones and minus ones: all their filters are equally long, so that each matches itself best."""
    torch.manual_seed(3)
    layer = EpitomicConv2d(channels, 6, 4, pool_size=3, stride=4, normalize=normalize, eps=0.0, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.randint(0, 2, layer.weight.shape).double() * 2 - 1)
        assert layer.bias is not None
        layer.bias.zero_()
    return layer


@pytest.mark.parametrize("normalize", [False, True])
def test_an_image_made_of_known_patches_is_rebuilt_exactly(normalize: bool) -> None:
    layer = signed_layer(normalize)
    filters = layer.filters().detach()  # (K, D*D, C, W, W)
    generator = torch.Generator().manual_seed(1)
    k = torch.randint(0, 6, (5, 7), generator=generator)
    p = torch.randint(0, 9, (5, 7), generator=generator)
    size = torch.rand(5, 7, generator=generator, dtype=torch.float64) + 0.5
    image = torch.zeros(1, 2, 20, 28, dtype=torch.float64)
    for i in range(5):
        for j in range(7):
            patch = size[i, j] * filters[k[i, j], p[i, j]] + (0.3 * i if normalize else 0.0)
            image[0, :, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4] = patch
    match = matched(layer, image)
    rows, columns = torch.meshgrid(torch.arange(5), torch.arange(7), indexing="ij")
    assert torch.equal(match.positions[0, k, rows, columns], p)
    rebuilt = reconstruct(match, matches=1)
    assert float(rebuilt.error[0]) < 1e-12
    torch.testing.assert_close(rebuilt.image, image, rtol=0, atol=1e-12)


def test_overlapping_patches_of_one_epitome_are_rebuilt_exactly() -> None:
    torch.manual_seed(0)
    layer = EpitomicConv2d(1, 3, 4, pool_size=4, stride=1, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.randint(0, 2, layer.weight.shape).double() * 2 - 1)
    image = 2.5 * layer.weight[1:2].detach()  # the whole epitome: its patches are its filters
    match = matched(layer, image)
    assert torch.equal(match.positions[0, 1].flatten(), torch.arange(16))
    torch.testing.assert_close(reconstruct(match).image, image, rtol=0, atol=1e-12)


def test_orthogonal_epitomes_are_rebuilt_exactly_by_response() -> None:
    layer = EpitomicConv2d(1, 4, 2, pool_size=1, stride=2, bias=False, dtype=torch.float64)
    signs = torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]).double()
    with torch.no_grad():
        layer.weight.copy_(signs.reshape(4, 1, 2, 2))
    amounts = torch.rand(9, 4, dtype=torch.float64)  # none negative: the ReLU lets all of them through
    patches = (amounts @ signs).reshape(3, 3, 2, 2)
    image = patches.permute(0, 2, 1, 3).reshape(1, 1, 6, 6)
    torch.testing.assert_close(reconstruct(matched(layer, image), matches=None).image, image)


@pytest.mark.parametrize("options", [{"padding": 2}, {"padding": 1, "padding_mode": "reflect"}, {"stride": 5}])
def test_more_matches_are_never_worse(options: dict[str, int]) -> None:
    torch.manual_seed(1)
    layer = EpitomicConv2d(1, 30, 3, pool_size=2, **options)  # type: ignore[arg-type]
    x = torch.randn(2, 1, 11, 13)
    match = matched(layer, x)
    errors = [reconstruct(match, matches=n).error.max().item() for n in (1, 4, 9)]
    assert errors[0] > errors[1] > errors[2]
    rebuilt = reconstruct(match, matches=9)
    assert rebuilt.image.shape == x.shape
    if "stride" in options:
        assert (rebuilt.image == 0).any()  # between the patches
    else:
        assert errors[2] < 1e-5  # nine winners span a patch of nine pixels
