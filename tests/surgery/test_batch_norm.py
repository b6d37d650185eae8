"""A batch normalisation folds into our layers exactly, or an error says why not."""

from typing import Any

import pytest
import torch
from torch import nn

from epitomic import EpitomicConv2d, MaxoutConv2d, MaxPoolConv2d, NormConv2d, WinogradConv2d, fold_batch_norm

LAYERS: dict[str, Any] = {
    "epitomic": lambda **options: EpitomicConv2d(4, 6, 3, padding=1, **options),
    "epitomic with a stride": lambda **options: EpitomicConv2d(4, 6, 4, pool_size=3, epitome_stride=2, **options),
    "epitomic in groups": lambda **options: EpitomicConv2d(4, 6, 3, groups=2, **options),
    "max-pooled": lambda **options: MaxPoolConv2d(4, 6, 3, padding=1, pool_padding=1, ceil_mode=True, **options),
    "maxout": lambda **options: MaxoutConv2d(4, 6, 3, pieces=3, **options),
    "plain": lambda **options: WinogradConv2d(4, 6, 3, padding=1, **options),
}


def batch_norm(channels: int = 6, *, low: float = 0.5, **options: Any) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, **options).eval()
    for tensor, least in ((norm.weight, low), (norm.bias, -1), (norm.running_mean, -1), (norm.running_var, 0.5)):
        if tensor is not None:
            nn.init.uniform_(tensor, least, 2)
    return norm


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_folds_exactly(kind: str, affine: bool, bias: bool) -> None:
    torch.manual_seed(0)
    layer, norm, x = LAYERS[kind](bias=bias).double(), batch_norm(affine=affine).double(), torch.randn(2, 4, 11, 13)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    folded = fold_batch_norm(layer, norm)
    assert type(folded) is type(layer)
    torch.testing.assert_close(folded(x.double()), norm(layer(x.double())), rtol=1e-10, atol=1e-10)
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())


@pytest.mark.parametrize("kind", [kind for kind in LAYERS if kind != "plain"])
def test_a_negative_scale_is_an_error_that_says_why(kind: str) -> None:
    norm = batch_norm()
    with torch.no_grad():
        norm.weight[4] = -1
    with pytest.raises(ValueError, match=r"1 of 6 scales are negative, the first in channel 4.* into a minimum"):
        fold_batch_norm(LAYERS[kind](), norm)


def test_a_plain_convolution_takes_any_scale_and_a_maximum_takes_zero() -> None:
    torch.manual_seed(0)
    plain, norm, x = WinogradConv2d(4, 6, 3), batch_norm(low=-2), torch.randn(1, 4, 9, 9)
    torch.testing.assert_close(fold_batch_norm(plain, norm)(x), norm(plain(x)), rtol=1e-4, atol=1e-4)
    layer, norm = EpitomicConv2d(4, 6, 3), batch_norm()
    nn.init.zeros_(norm.weight)
    torch.testing.assert_close(fold_batch_norm(layer, norm)(x), norm(layer(x)), rtol=1e-4, atol=1e-4)


def test_layers_that_cannot_take_a_scale_say_why() -> None:
    kinds: dict[Any, dict[str, Any]] = {
        EpitomicConv2d: {"normalize": True},
        MaxPoolConv2d: {"normalize": True},
        NormConv2d: {},
    }
    for kind, options in kinds.items():
        with pytest.raises(ValueError, match="normalised"):
            fold_batch_norm(kind(4, 6, 3, **options), batch_norm())
    with pytest.raises(ValueError, match="4 channels per epitome share weights"):
        fold_batch_norm(EpitomicConv2d(4, 8, 3, pool_size=2, epitome_size=6), batch_norm(8))
    with pytest.raises(ValueError, match="parametrised"):
        fold_batch_norm(nn.utils.parametrizations.weight_norm(EpitomicConv2d(4, 6, 3)), batch_norm())


def test_a_batch_norm_that_does_not_fit_is_an_error() -> None:
    layer = EpitomicConv2d(4, 6, 3)
    with pytest.raises(ValueError, match=r"call bn.eval\(\)"):
        fold_batch_norm(layer, nn.BatchNorm2d(6))
    with pytest.raises(ValueError, match="no running statistics"):
        fold_batch_norm(layer, nn.BatchNorm2d(6, track_running_stats=False).eval())
    with pytest.raises(ValueError, match="the layer's 6 channels, got 8"):
        fold_batch_norm(layer, batch_norm(8))
    with pytest.raises(TypeError, match=r"nn.BatchNorm2d, got ReLU"):
        fold_batch_norm(layer, nn.ReLU())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got Linear"):
        fold_batch_norm(nn.Linear(4, 6), batch_norm())  # type: ignore[type-var]
