"""The layers: their parameters, what they compute, and that they behave as torch layers do."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from epitomic import (
    EpitomicConv2d,
    MaxoutConv2d,
    MaxPoolConv2d,
    NormConv2d,
    WinogradConv2d,
    epitomic_conv2d,
    max_pool_conv2d,
)


def test_is_its_functional_twin() -> None:
    layer = EpitomicConv2d(3, 8, (3, 4), pool_size=(2, 3), stride=(1, 2), padding=(1, 0), normalize=True, eps=0.1)
    x = torch.randn(2, 3, 9, 10)
    options: dict[str, Any] = {"kernel_size": (3, 4), "pool_size": (2, 3), "stride": (1, 2), "padding": (1, 0)}
    expected = epitomic_conv2d(x, layer.weight, layer.bias, **options, normalize=True, eps=0.1)
    assert torch.equal(layer(x), expected)
    assert torch.equal(layer.match(x)[0], expected)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes(mode: str) -> None:
    layer = EpitomicConv2d(2, 4, 3, padding=(1, 2), padding_mode=mode)
    x = torch.randn(1, 2, 7, 7)
    padded = F.pad(x, (2, 2, 1, 1), mode=mode)
    assert torch.equal(layer(x), epitomic_conv2d(padded, layer.weight, layer.bias, kernel_size=3, pool_size=2))


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_max_pooled_layer_is_conv_and_max_pool(mode: Any) -> None:
    conv = nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=1, groups=2, padding_mode=mode)
    pool = nn.MaxPool2d((3, 2), stride=2, padding=(1, 0), ceil_mode=True)
    layer = MaxPoolConv2d(
        4,
        6,
        (3, 2),
        pool_size=(3, 2),
        pool_stride=2,
        pool_padding=(1, 0),
        stride=(1, 2),
        padding=1,
        groups=2,
        ceil_mode=True,
        padding_mode=mode,
    )
    layer.load_state_dict(conv.state_dict())
    x = torch.randn(2, 4, 11, 13)
    torch.testing.assert_close(layer(x), pool(conv(x)))
    torch.testing.assert_close(layer.match(x)[0], pool(conv(x)))


def test_max_pooled_layer_starts_as_conv2d() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 6, 3, groups=2)
    torch.manual_seed(0)
    layer = MaxPoolConv2d(4, 6, 3, groups=2)
    for a, b in zip(layer.parameters(), conv.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_max_pooled_normalised_filters() -> None:
    layer, x = MaxPoolConv2d(3, 4, 3, normalize=True, eps=0.5), torch.randn(2, 3, 9, 9)
    conv = NormConv2d(3, 4, 3, eps=0.5)
    conv.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer.filters(), conv.filters())
    torch.testing.assert_close(layer(x), F.max_pool2d(conv(x), 2))
    expected = max_pool_conv2d(x, layer.weight, layer.bias, pool_size=2, normalize=True, eps=0.5)
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding": 1, "bias": False},
        {"padding": "same", "padding_mode": "reflect"},
        {"padding": (2, 1), "padding_mode": "circular", "groups": 2},
        {"stride": 2, "dilation": 2},
    ],
)
def test_winograd_layer_is_a_convolution(options: dict[str, Any]) -> None:
    conv, layer = nn.Conv2d(32, 32, 3, **options), WinogradConv2d(32, 32, 3, **options)
    layer.load_state_dict(conv.state_dict())
    x = torch.randn(2, 32, 12, 13)
    torch.testing.assert_close(layer(x), conv(x), rtol=1e-4, atol=1e-4)
    assert layer.extra_repr() == conv.extra_repr()


def test_winograd_layer_shows_and_checks_its_algorithm() -> None:
    assert "algorithm='direct'" in repr(WinogradConv2d(3, 8, 3, algorithm="direct"))
    with pytest.raises(ValueError, match=r"algorithm must be one of auto, .* got 'fft'"):
        WinogradConv2d(3, 8, 3, algorithm="fft")


def test_groups_are_layers_side_by_side() -> None:
    layer = EpitomicConv2d(4, 6, 3, groups=2, normalize=True)
    assert layer.weight.shape == (6, 2, 4, 4)
    assert layer.bias is not None
    x = torch.randn(2, 4, 9, 9)
    parts = [
        epitomic_conv2d(part, weight, bias, kernel_size=3, pool_size=2, normalize=True)
        for part, weight, bias in zip(x.chunk(2, 1), layer.weight.chunk(2), layer.bias.chunk(2), strict=True)
    ]
    torch.testing.assert_close(layer(x), torch.cat(parts, 1))


def test_filters_are_what_matches() -> None:
    """The layer is the maximum over positions of a conv2d with ``filters()``."""
    for arguments in ({}, {"normalize": True}, {"epitome_size": 9, "normalize": True}, {"epitome_stride": 2}):
        layer = EpitomicConv2d(3, 18, 3, pool_size=2, bias=False, **arguments)
        x = torch.randn(2, 3, 10, 10)
        filters = layer.filters()  # (out_channels, D*D, C, W, W)
        assert filters.shape == (18, 4, 3, 3, 3)
        responses = F.conv2d(x, filters.flatten(0, 1), stride=2).unflatten(1, (18, 4))
        y, positions = layer.match(x)
        torch.testing.assert_close(y, responses.amax(2))
        torch.testing.assert_close(y, responses.gather(2, positions.unsqueeze(2)).squeeze(2))


def test_normalised_filters_have_no_mean_and_unit_contrast() -> None:
    filters = EpitomicConv2d(4, 6, 5, normalize=True, eps=0).filters()
    torch.testing.assert_close(filters.mean((2, 3, 4)), torch.zeros(6, 4), atol=1e-6, rtol=0)
    torch.testing.assert_close(filters.square().sum((2, 3, 4)), torch.ones(6, 4))


def test_fan_in_is_that_of_a_filter() -> None:
    layer = EpitomicConv2d(16, 64, 3, pool_size=3)
    bound = (16 * 3 * 3) ** -0.5
    for parameter in layer.parameters():
        assert 0.9 * bound < parameter.abs().max() <= bound


def test_out_channels_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match=r"out_channels=100 is not a multiple of the 49 outputs .* use 98 or 147"):
        EpitomicConv2d(96, 100, 6, pool_size=3, epitome_size=26)
    with pytest.raises(ValueError, match="use 49"):
        EpitomicConv2d(96, 10, 6, pool_size=3, epitome_size=26)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"in_channels": 0}, ValueError, "in_channels must be at least 1"),
        ({"out_channels": 1.5}, TypeError, "out_channels must be an int"),
        ({"padding_mode": "zero"}, ValueError, "padding_mode must be one of zeros, .* got 'zero'"),
        ({"out_channels": (8, 8)}, TypeError, r"out_channels must be an int, got \(8, 8\)"),
        ({"algorithm": "fft"}, ValueError, "algorithm must be one of auto, .* got 'fft'"),
        ({"normalize": True, "eps": -1}, ValueError, "eps, .* must not be negative, got -1"),
        ({"groups": 2}, ValueError, "groups must divide in_channels, and 2 does not divide 3"),
        ({"groups": 3}, ValueError, "groups must divide out_channels, and 3 does not divide 8"),
        ({"groups": 3, "epitome_size": 6}, ValueError, "out_channels / 4 outputs per epitome"),
    ],
)
def test_errors_name_the_argument(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        EpitomicConv2d(**({"in_channels": 3, "out_channels": 8, "kernel_size": 3} | arguments))


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"pool_size": 0}, ValueError, "pool_size must be at least 1"),
        ({"pool_padding": 2}, ValueError, r"pool_padding must be at most half of pool_size=\(2, 2\), got \(2, 2\)"),
        ({"pool_stride": "2"}, TypeError, "pool_stride must be an int or a pair of ints, got '2'"),
        ({"groups": 5}, ValueError, "groups must divide in_channels, and 5 does not divide 3"),
        ({"algorithm": "fft"}, ValueError, "algorithm must be one of auto, .* got 'fft'"),
    ],
)
def test_errors_of_the_max_pooled_layer(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        MaxPoolConv2d(**({"in_channels": 3, "out_channels": 8, "kernel_size": 3} | arguments))


def test_repr_of_the_max_pooled_layer() -> None:
    plain = repr(MaxPoolConv2d(3, 8, 3))
    assert plain == "MaxPoolConv2d(3, 8, kernel_size=(3, 3), pool_size=(2, 2))"
    full = repr(MaxPoolConv2d(4, 8, 3, pool_size=3, pool_stride=2, pool_padding=1, stride=2, groups=2, ceil_mode=True))
    for part in ("pool_stride=(2, 2)", "pool_padding=(1, 1)", " stride=(2, 2)", "groups=2", "ceil_mode=True"):
        assert part in full


def test_repr_tells_the_truth() -> None:
    plain = repr(EpitomicConv2d(3, 8, 3))
    assert plain == "EpitomicConv2d(3, 8, kernel_size=(3, 3), pool_size=(2, 2), stride=(2, 2))"
    full = repr(
        EpitomicConv2d(
            3,
            100,
            8,
            pool_size=3,
            stride=4,
            padding=1,
            epitome_size=36,
            epitome_stride=2,
            normalize=True,
            bias=False,
            padding_mode="reflect",
            algorithm="direct",
        )
    )
    for part in ("epitome_size=(36, 36)", "epitome_stride=(2, 2)", "eps=0.01", "bias=False", "'reflect'", "'direct'"):
        assert part in full


def test_sizes_are_attributes_as_in_torch_layers() -> None:
    layer = EpitomicConv2d(3, 8, (3, 5), pool_size=2, stride=(1, 2), padding=1)
    assert (layer.kernel_size, layer.pool_size, layer.stride, layer.padding) == ((3, 5), (2, 2), (1, 2), (1, 1))


def test_norm_conv_is_a_convolution_with_normalised_filters() -> None:
    layer = NormConv2d(3, 8, 5, stride=2, padding=1, eps=0.5)
    x = torch.randn(2, 3, 11, 11)
    w = layer.weight - layer.weight.mean((1, 2, 3), keepdim=True)
    w = w / (w.square().sum((1, 2, 3), keepdim=True) + 0.5).sqrt()
    torch.testing.assert_close(layer(x), F.conv2d(x, w, layer.bias, stride=2, padding=1))
    assert "eps=0.5" in repr(layer)
    # Eq. 3 of a plain convolution is an epitomic layer of one position.
    epitomic = epitomic_conv2d(
        x, layer.weight, layer.bias, kernel_size=5, pool_size=1, stride=2, padding=1, normalize=True, eps=0.5
    )
    torch.testing.assert_close(layer(x), epitomic)


def test_maxout_is_the_best_of_its_pieces() -> None:
    layer = MaxoutConv2d(3, 5, 3, pieces=4, padding=1, padding_mode="replicate")
    x = torch.randn(2, 3, 7, 7)
    pieces = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), layer.weight, layer.bias)
    best = torch.stack([pieces[:, 4 * k : 4 * k + 4].amax(1) for k in range(5)], 1)
    torch.testing.assert_close(layer(x), best)


@pytest.mark.parametrize("make", [EpitomicConv2d, MaxPoolConv2d, NormConv2d, WinogradConv2d, MaxoutConv2d])
def test_copies_and_state(make: Any) -> None:
    layer, x = make(3, 8, 3), torch.randn(1, 3, 9, 9)
    other = make(3, 8, 3)
    other.load_state_dict(layer.state_dict())
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), other):
        assert torch.equal(twin(x), layer(x))
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    assert list(torch.load(buffer, weights_only=True)) == ["weight", "bias"]


@pytest.mark.parametrize("make", [EpitomicConv2d, MaxPoolConv2d, NormConv2d, WinogradConv2d, MaxoutConv2d])
def test_device_and_dtype(make: Any) -> None:
    layer = make(3, 8, 3, device="meta", dtype=torch.float64)
    assert all(p.is_meta and p.dtype == torch.float64 for p in layer.parameters())
    y = layer(torch.empty(2, 3, 9, 9, device="meta", dtype=torch.float64))
    assert y.shape == make(3, 8, 3)(torch.randn(2, 3, 9, 9)).shape
    real = layer.to_empty(device="cpu")
    real.reset_parameters()
    assert real(torch.randn(2, 3, 9, 9, dtype=torch.float64)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("algorithm", ["auto", "direct", "winograd"])
def test_an_activation_may_work_in_place(
    algorithm: str, memory_format: torch.memory_format, dtype: torch.dtype
) -> None:
    layer = EpitomicConv2d(16, 8, 3, algorithm=algorithm, dtype=dtype)
    x = torch.randn(2, 16, 10, 10, dtype=dtype).to(memory_format=memory_format)
    expected = torch.autograd.grad(torch.relu(layer(x)).square().sum(), layer.weight)[0]
    found = torch.autograd.grad(torch.relu_(layer(x)).square().sum(), layer.weight)[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("mode", ["zeros", "circular"])
@pytest.mark.parametrize("kernel", [3, 4, (2, 5)])
def test_same_padding(kernel: Any, mode: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 11)
    conv = nn.Conv2d(3, 8, kernel, padding="same", padding_mode=mode)
    pooled = MaxPoolConv2d(3, 8, kernel, padding="same", padding_mode=mode)
    pooled.load_state_dict(conv.state_dict())
    torch.testing.assert_close(pooled(x), F.max_pool2d(conv(x), 2), rtol=1e-4, atol=1e-5)
    epitomic = EpitomicConv2d(3, 8, kernel, stride=1, padding="same", padding_mode=mode)
    assert epitomic(x).shape[2:] == x.shape[2:]
    direct = EpitomicConv2d(3, 8, kernel, stride=1, padding="same", padding_mode=mode, algorithm="reference")
    direct.load_state_dict(epitomic.state_dict())
    torch.testing.assert_close(epitomic(x), direct(x), rtol=1e-4, atol=1e-5)
    assert EpitomicConv2d(3, 8, kernel, padding="valid").padding == (0, 0)


def test_same_padding_needs_a_stride_of_one() -> None:
    with pytest.raises(ValueError, match=r"padding='same' needs a stride of 1, got stride=\(2, 2\)"):
        EpitomicConv2d(3, 8, 3, padding="same")


@pytest.mark.parametrize("step", [1, 2])
def test_a_layer_that_starts_as_max_pooling(step: int) -> None:
    torch.manual_seed(0)
    layer = EpitomicConv2d(3, 8, 4 * step, pool_size=2, stride=2 * step, epitome_stride=step, init="maxpool")
    width = 3 * step
    inner = layer.weight.detach()[..., step : step + width, step : step + width]
    assert layer.weight.count_nonzero() == inner.count_nonzero() == inner.numel()
    assert inner.abs().max() <= (3 * width**2) ** -0.5
    x = torch.randn(2, 3, 17, 17)
    pair = F.max_pool2d(F.conv2d(x, inner, layer.bias, stride=step), 2)
    torch.testing.assert_close(layer(x), pair, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"init": "zeros"}, "init must be one of uniform, maxpool, got 'zeros'"),
        ({"init": "maxpool", "kernel_size": 1}, r"init='maxpool' needs a kernel_size of at least \(2, 2\)"),
        ({"init": "maxpool", "epitome_size": 6}, r"init='maxpool' needs mini-epitomes, epitome_size=\(4, 4\)"),
    ],
)
def test_errors_of_the_start(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        EpitomicConv2d(**{"in_channels": 3, "out_channels": 8, "kernel_size": 3, "pool_size": 2} | arguments)
